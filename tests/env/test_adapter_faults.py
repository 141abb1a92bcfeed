"""Answers of an environment that are not what it has declared."""

import gymnasium as gym
import numpy as np
import pytest
import stub_worlds

from rtagent.config import EnvConfig
from rtagent.env.adapter import Adapter
from rtagent.env.observers import EnvironmentFault
from tests.env.conftest import PICTURE, wrap

Box, Dict, Discrete = gym.spaces.Box, gym.spaces.Dict, gym.spaces.Discrete


@pytest.mark.parametrize("reward", [float("nan"), float("-inf"), np.float32("inf"), 1e39, -1e39])
def test_a_reward_that_is_not_finite_truncates_the_episode_and_is_counted(reward):
    adapter, world = wrap()
    adapter.reset()
    before = adapter.step(0)
    world.rewards = reward
    step = adapter.step(0)
    assert (step.reward, step.terminated, step.truncated) == (0.0, False, True)
    np.testing.assert_array_equal(step.frame, before.frame)
    world.rewards = 1.5
    adapter.reset()
    assert (adapter.step(0).reward, adapter.faults) == (1.5, 1)


def test_an_observation_that_is_not_finite_truncates_the_episode_and_is_counted():
    adapter, world = wrap()
    world.shows = np.float32([1, 2, 3])
    adapter.reset()
    world.shows[1] = np.nan
    step = adapter.step(0)
    np.testing.assert_array_equal(step.frame, [1, 2, 3])
    assert (step.reward, step.terminated, step.truncated, adapter.faults) == (0.0, False, True, 1)
    assert adapter.cuts == 1


def test_an_episode_that_begins_with_nan_is_begun_again():
    seeds = []

    class Flaky(stub_worlds.World):
        def reset(self, *, seed=None, options=None):
            seeds.append(seed)
            return np.full(3, np.nan if len(seeds) < 3 else 1.0), {}

    adapter = Adapter(Flaky(), EnvConfig())
    np.testing.assert_array_equal(adapter.reset(seed=7), np.ones(3))
    # These faults cut no episode short.
    assert (seeds, adapter.faults, adapter.cuts) == ([7, None, None], 2, 0)


@pytest.mark.parametrize("reward", [None, "much", np.zeros(2)])
def test_a_reward_that_is_no_number_is_a_fault(reward):
    adapter, world = wrap()
    adapter.reset()
    world.rewards = reward
    with pytest.raises(EnvironmentFault, match="reward"):
        adapter.step(0)


@pytest.mark.parametrize(
    ("method", "arguments", "answer", "told"),
    [
        ("step", [0], (np.zeros(3), 0.0, False, {}), "step.. returns 4 values"),
        ("step", [0], None, "step.. returns a NoneType"),
        ("reset", [], np.zeros(2), r"reset.. returns a ndarray.* \(observation, info\)"),
    ],
)
def test_an_answer_of_other_parts_than_gymnasiums_is_an_error(method, arguments, answer, told):
    adapter, world = wrap()
    setattr(world, method, lambda *_, **__: answer)
    with pytest.raises(TypeError, match=told):
        getattr(adapter, method)(*arguments)


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ((np.zeros(2), False), r"terminated .* of shape \(2,\)"),
        ((False, np.zeros((2, 1))), r"truncated .* of shape \(2, 1\)"),
    ],
)
def test_an_end_that_is_not_one_bool_is_a_fault(flags, told):
    adapter, world = wrap()
    world.step = lambda action: (np.zeros(3), 0.0, *flags, {})
    with pytest.raises(EnvironmentFault, match=told):
        adapter.step(0)


@pytest.mark.parametrize(
    ("space", "shown"),
    [
        (None, np.array([0.0, np.nan, 0.0])),
        (None, np.zeros(4)),
        (PICTURE, np.zeros((96, 128), np.uint8)),
        (PICTURE, np.zeros((96, 128, 3), np.float32)),
        (Box(0.0, 1.0, (20, 20, 3)), np.zeros((20, 20, 3), np.uint8)),
        (Box(0.0, 1.0, (20, 20, 3)), np.full((20, 20, 3), np.nan)),
        (Dict({"a": Discrete(2), "b": Discrete(2)}), {"a": 1}),
        (gym.spaces.Tuple([Discrete(2), Discrete(2)]), (1,)),
        (Discrete(3), 3),
        (Dict({"image": PICTURE}), {}),
        (Dict({"image": PICTURE}), None),
        (Discrete(3), None),
        (Discrete(3), float("inf")),
        (None, [1.0, 2.0, "x"]),
        (None, [[1.0], [2.0, 3.0]]),
    ],
)
def test_an_observation_outside_its_space_is_a_fault(space, shown):
    adapter, world = wrap(observations=space)
    world._see = lambda: shown
    with pytest.raises(EnvironmentFault, match="environment"):
        adapter.reset()
