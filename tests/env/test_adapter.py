
import gymnasium as gym
import numpy as np
import pytest
import stub_worlds

from rtagent.config import EnvConfig
from rtagent.env.adapter import Adapter, open_environment
from rtagent.env.declarations import noop_action
from rtagent.errors import UserError
from tests.env.conftest import PICTURE, refusal, wrap

Box, Dict, Discrete = gym.spaces.Box, gym.spaces.Dict, gym.spaces.Discrete


def test_cartpole():
    adapter = open_environment(EnvConfig(id="CartPole-v1"))
    assert (adapter.frame_shape, adapter.frame_dtype, adapter.screen) == ((4,), "float32", False)
    assert (adapter.action_shape, adapter.action_dtype, adapter.frame_stack) == ((), "int32", 1)
    first = adapter.reset(seed=7)
    assert (first.shape, first.dtype) == ((4,), np.float32)
    np.testing.assert_array_equal(first, adapter.reset(seed=7))
    step = adapter.step(np.int32(1))
    assert step.reward == 1.0
    assert not step.terminated
    for _ in range(30):
        if not step.terminated:
            step = adapter.step(1)
    assert step.terminated
    assert not step.truncated
    adapter.close()


@pytest.mark.parametrize(
    ("declared", "known"),
    [
        ((-1, 2), (-1.0, 2.0)), ((1.0, 5.0), (0.0, 5.0)), ((-3.0, -1.0), (-3.0, 0.0)),
        (np.array([-1.0, 2.0]), (-1.0, 2.0)),
        ((-np.inf, np.inf), None), ((2.0, 1.0), None), ("high", None), (None, None),
    ],
)
def test_the_range_of_rewards_is_what_the_environment_declares(declared, known):
    adapter, world = wrap(reward_range=declared)
    assert adapter.reward_range == known
    world.metadata["reward_range"] = declared
    del world.reward_range
    assert Adapter(world, EnvConfig()).reward_range == known
    assert wrap()[0].reward_range is None


def test_truncation_is_not_termination():
    adapter = open_environment(EnvConfig(id="Pendulum-v1", kwargs={"max_episode_steps": 2}))
    adapter.reset(seed=0)
    steps = [adapter.step(adapter.noop_action) for _ in range(2)]
    assert [(step.terminated, step.truncated) for step in steps] == [(False, False), (False, True)]


def test_discrete_observations_become_one_hot():
    adapter = open_environment(EnvConfig(id="FrozenLake-v1"))
    np.testing.assert_array_equal(adapter.reset(seed=0), np.eye(16, dtype=np.float32)[0])
    adapter, world = wrap(observations=Discrete(3, start=5))
    world.shows = 6
    np.testing.assert_array_equal(adapter.reset(), [0, 1, 0])


@pytest.mark.parametrize(
    "shape", [(96, 128), (96, 128, 1), (96, 128, 3), (96, 128, 4), (1, 96, 128), (3, 96, 128)]
)
def test_pictures_become_84_by_84_grey(shape):
    adapter, _ = wrap(observations=Box(0, 255, shape, np.uint8))
    assert (adapter.frame_shape, adapter.frame_dtype, adapter.screen) == ((84, 84), "uint8", True)
    assert adapter.frame_stack == 4
    frame = adapter.reset(seed=0)
    assert (frame.shape, frame.dtype) == ((84, 84), np.uint8)
    assert adapter.step(0).frame.flags.c_contiguous


def test_a_picture_of_the_right_size_is_passed_through():
    adapter, world = wrap(observations=Box(0, 255, (84, 84), np.uint8))
    world.shows = np.arange(84 * 84, dtype=np.uint8).reshape(84, 84)
    assert adapter.reset() is world.shows


@pytest.mark.parametrize(
    ("keys", "seen"), [(("left", "rgb"), "rgb"), (("image", "rgb", "pixels"), "pixels")]
)
def test_of_several_pictures_the_one_of_a_usual_name_is_taken(keys, seen):
    adapter, world = wrap(observations=Dict(dict.fromkeys(keys, PICTURE)))
    world.shows = {key: np.full(PICTURE.shape, 9 * (key == seen), np.uint8) for key in keys}
    assert adapter.reset().min() == 9


def test_an_entry_of_a_dict_can_be_chosen():
    space = Dict({"pixels": PICTURE, "left": PICTURE, "speed": Box(0.0, 1.0, (2,), np.float32)})
    adapter, world = wrap(EnvConfig(observation_key="left"), observations=space)
    world.shows = {**space.sample(), "left": np.full(PICTURE.shape, 9, np.uint8)}
    assert adapter.reset().min() == 9
    assert wrap(EnvConfig(observation_key="speed"), observations=space)[0].frame_shape == (2,)
    names = "pixels, left, speed|left, pixels, speed"
    for spaces, named in ((space, names), (PICTURE, "no Dict; leave it")):
        with pytest.raises(UserError, match=named):
            wrap(EnvConfig(observation_key="right"), observations=spaces)


@pytest.mark.parametrize(
    ("space", "shown", "vector"),
    [
        (
            Dict({"b": Box(-9.0, 9.0, (2,)), "a": Discrete(2)}),
            {"b": np.float32([5, 6]), "a": 1},
            [0, 1, 5, 6],
        ),
        (gym.spaces.Tuple([Discrete(2), gym.spaces.MultiBinary(2)]), (0, [0, 1]), [1, 0, 0, 1]),
        (gym.spaces.MultiDiscrete([2, 3]), np.array([1, 2]), [0, 1, 0, 0, 1]),
        (gym.spaces.MultiBinary((1, 3)), np.array([[1, 0, 1]]), [1, 0, 1]),
        (Box(0, 255, (2,), np.uint8), np.uint8([255, 51]), [1.0, 0.2]),
        (Box(0.0, 9.0, (2, 2), np.float64), np.array([[1.0, 2.0], [3.0, 4.0]]), [1, 2, 3, 4]),
    ],
)
def test_other_observations_become_one_vector(space, shown, vector):
    adapter, world = wrap(observations=space)
    world.shows = shown
    frame = adapter.reset()
    np.testing.assert_allclose(frame, vector, rtol=1e-6)
    assert (frame.shape, frame.dtype) == (adapter.frame_shape, np.float32)


def test_actions_count_from_zero_whatever_the_environment_does():
    adapter, world = wrap(actions=Discrete(3, start=-1))
    assert adapter.action_space == Discrete(3)
    adapter.reset()
    adapter.step(0)
    adapter.step(np.int32(2))
    assert world.received == [-1, 1]
    assert adapter.actions.accept(-1) == 0
    with pytest.raises(ValueError, match="2 is outside -1 to 1"):
        adapter.actions.accept(2)
    with pytest.raises(ValueError, match="action 3 is outside 0 to 2"):
        adapter.step(3)


def test_box_actions_have_the_environments_shape_bounds_and_type():
    low, high = np.array([[-1.0, 0.0]]), np.array([[1.0, 20.0]])
    adapter, world = wrap(actions=Box(low, high, dtype=np.float64))
    assert adapter.action_shape == (2,)
    assert adapter.action_space.shape == (2,)
    adapter.reset()
    adapter.step(np.array([-3.0, 9.0], np.float32))
    np.testing.assert_array_equal(world.received[0], [[-1.0, 9.0]])
    assert world.received[0].dtype == np.float64
    with pytest.raises(ValueError, match="not finite"):
        adapter.step(np.array([np.nan, 0.0], np.float32))


@pytest.mark.parametrize(
    ("space", "numbers", "index"),
    [
        (gym.spaces.MultiDiscrete([3, 2], start=[0, 5]), [2, 6], 5),
        (gym.spaces.MultiDiscrete([[3], [2]]), [[1], [1]], 3),
        (gym.spaces.MultiBinary(3), [1, 0, 1], 5),
        (gym.spaces.MultiBinary((3, 1)), [[0], [1], [1]], 3),
    ],
)
def test_combinations_of_choices_are_discrete_actions(space, numbers, index):
    adapter, world = wrap(actions=space, noop_action=numbers)
    count = adapter.action_space.n
    assert (adapter.noop_action, adapter.action_shape) == (index, ())
    adapter.reset()
    for action in range(count):
        adapter.step(np.int32(action))
    assert all(space.contains(each) for each in world.received)
    assert len({each.tobytes() for each in world.received}) == count
    assert [adapter.actions.accept(each) for each in world.received] == list(range(count))
    with pytest.raises(ValueError, match="out of bounds"):
        adapter.step(count)
    for wrong in (0, [9, 9, 9][: len(numbers)], [0.5] * len(numbers), "up", [float("nan")] * 2):
        with pytest.raises(ValueError, match=r"expected|is not in"):
            adapter.actions.accept(wrong)


@pytest.mark.parametrize(
    "space",
    [
        Discrete(65_537),
        gym.spaces.MultiBinary(12),
        gym.spaces.MultiDiscrete([9, 9]),
        gym.spaces.Tuple([Discrete(2)]),
        Box(0, 3, (2,), np.int32), Box(np.float32([0, -np.inf]), np.float32([1, 1])),
        # Finite, but their distance is infinite in float32, and so would be each action.
        Box(-1e300, 1e300, (1,), np.float64), Box(-3e38, 3e38, (2,), np.float32),
        Box(-np.inf, np.inf, (2,), np.float16),
    ],
)
def test_other_actions_are_refused_by_name(space):
    with pytest.raises(UserError, match=f"cannot act in {type(space).__name__}"):
        wrap(actions=space)


def test_rate_is_the_configured_else_the_environments_own():
    assert wrap(EnvConfig(rate_hz=12.5), rate_hz=59.0)[0].rate_hz == 12.5
    assert wrap(rate_hz=59.0)[0].rate_hz == 59.0
    assert wrap()[0].rate_hz == 20.0
    for fps in (None, 0, float("nan"), "fast"):
        with pytest.raises(UserError, match=r"set env\.rate_hz"):
            wrap(fps=fps)


def test_noop_is_the_attribute_else_the_meaning_else_zero():
    words = {"get_action_meanings": lambda: ["LEFT", "NOOP", "RIGHT"]}
    three = Discrete(3, start=10)
    assert wrap(actions=three, noop_action=12, **words)[0].noop_action == 2
    named, _ = wrap(actions=three, **words)
    assert (named.noop_action, named.action_meanings) == (1, ("LEFT", "NOOP", "RIGHT"))
    assert wrap(actions=three)[0].noop_action == 0
    assert wrap(actions=three)[0].action_meanings == ()
    with pytest.raises(UserError, match="noop_action: 3 is outside 10 to 12"):
        wrap(actions=three, noop_action=3)


def test_a_wrapper_speaks_for_the_environment_in_it():
    class Reversed(gym.Wrapper):
        noop_action, rate_hz, picture_lag, reward_range = 1, 30.0, 2, (-3.0, 3.0)

        def get_action_meanings(self):
            return ["GO", "STAY"]

        def take_news(self):
            return ["reversed"]

    world = stub_worlds.World(
        noop_action=0, rate_hz=60.0, picture_lag=1, reward_range=(-1.0, 1.0),
        get_action_meanings=lambda: ["STAY", "GO"], take_news=list,
    )
    adapter = Adapter(Reversed(world), EnvConfig())
    assert (adapter.noop_action, adapter.action_meanings) == (1, ("GO", "STAY"))
    assert (adapter.rate_hz, adapter.picture_lag) == (30.0, 2)
    assert (adapter.reward_range, adapter.take_news()) == ((-3.0, 3.0), ["reversed"])


def test_a_noop_of_other_actions_than_a_wrapper_has_is_not_declared():
    low, high = np.float32([-1.0, 0.0]), np.float32([1.0, 1.0])
    car = stub_worlds.World(actions=Box(low, high), noop_action=np.float32([0.5, 0.0]))
    same = gym.wrappers.TimeLimit(car, 9)
    assert Adapter(same, EnvConfig()).noop_action.tolist() == [0.5, 0.0]
    # Its 0 is half throttle; nobody can tell which of its actions does nothing.
    scaled = gym.wrappers.RescaleAction(car, np.float32([-1, -1]), np.float32([1, 1]))
    assert Adapter(scaled, EnvConfig()).noop_action.tolist() == [0.0, 0.0]
    assert noop_action(scaled) is None
    scaled.noop_action = np.float32([0.0, -1.0])
    assert Adapter(scaled, EnvConfig()).noop_action.tolist() == [0.0, -1.0]


def test_noop_of_a_box_is_zeros_within_the_bounds():
    low, high = np.float32([-1.0, 0.5]), np.float32([1.0, 2.0])
    space = Box(low, high, dtype=np.float32)
    np.testing.assert_array_equal(wrap(actions=space)[0].noop_action, [0.0, 0.5])
    chosen, _ = wrap(actions=space, noop_action=np.array([0.25, 1.0]))
    np.testing.assert_array_equal(chosen.noop_action, [0.25, 1.0])


def test_size_colours_and_number_of_pictures_are_configured():
    config = EnvConfig(image_size=48, grayscale=False, frame_stack=7)
    adapter, _ = wrap(config, observations=PICTURE)
    assert (adapter.frame_shape, adapter.frame_stack, adapter.screen) == ((48, 48, 3), 7, True)
    assert adapter.reset(seed=1).shape == (48, 48, 3)
    assert adapter.picture().shape == (48, 48, 3)
    adapter, _ = wrap(EnvConfig(image_size=[60, 80]), observations=PICTURE)
    assert adapter.frame_shape == (60, 80)


def test_a_restored_world_counts_the_ticks_of_its_episode_from_where_it_was():
    state = {"clone_state": lambda: None, "restore_state": lambda state: None}
    for attributes in (state, {}):
        adapter = Adapter(gym.wrappers.TimeLimit(stub_worlds.World(**attributes), 3), EnvConfig())
        adapter.reset()
        saved = adapter.save()
        for _ in range(2):
            assert [adapter.step(0).truncated for _ in range(3)] == [False, False, True]
            adapter.restore(saved)


def test_starfall_is_registered():
    adapter = open_environment(EnvConfig(kwargs={"starts": 2}))
    assert (adapter.rate_hz, adapter.frame_stack, adapter.noop_action) == (59.7275, 4, 0)
    assert adapter.action_meanings == ("NOOP", "LEFT", "RIGHT")
    assert "this process runs a Game Boy already" in refusal()
    adapter.close()
    assert "starts = 0" in refusal(kwargs={"starts": 0})
