from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rtagent.env.observer_choice import LONGEST_VECTOR, observer_for, sight
from rtagent.env.observers import GREY, SIDE
from rtagent.errors import UserError
from tests.refused import one_line


@pytest.mark.parametrize(("high", "kind"), [(1, np.uint8), (3, np.uint8), (1, np.int64)])
def test_the_largest_number_of_a_board_is_white(high, kind):
    board = np.full((20, 30), high, kind)
    board[:, :15] = 0
    observe = observer_for(gym.spaces.Box(0, high, board.shape, kind))
    assert np.unique(observe(board)[:, [0, -1]]).tolist() == [0, 255]


@pytest.mark.parametrize(("high", "seen"), [(3, [0, 1 / 3, 1]), (255, [0, 1 / 255, 3 / 255])])
def test_the_largest_number_of_small_whole_numbers_is_one(high, seen):
    observe = observer_for(gym.spaces.Box(0, high, (3,), np.uint8))
    np.testing.assert_allclose(observe(np.uint8([0, 1, 3])), seen, rtol=1e-6)


def test_small_arrays_of_floats_are_vectors():
    assert observer_for(gym.spaces.Box(0.0, 1.0, (8, 8))).shape == (64,)
    assert observer_for(gym.spaces.Box(0.0, 1.0, (24, 32))).shape == (SIDE, SIDE)
    assert observer_for(gym.spaces.Box(-np.inf, np.inf, (24, 32))).shape == (768,)


def test_where_there_are_no_colours_none_can_be_kept():
    with pytest.raises(UserError, match=r"env.grayscale = false: Box.*has no colours"):
        observer_for(gym.spaces.Box(0, 255, (120, 160), np.uint8), grayscale=False)


@pytest.mark.parametrize(
    ("high", "dtype"),
    [(np.finfo(np.float32).max, np.float32), (np.finfo(np.float64).max, np.float64),
     (np.iinfo(np.int32).max, np.int32)],
)
def test_bounds_that_only_say_what_fits_the_type_are_those_of_no_picture(high, dtype):
    numbers = np.arange(20 * 30).reshape(20, 30).astype(dtype)
    low = -high if np.dtype(dtype).kind == "f" else 0
    observe = observer_for(gym.spaces.Box(low, high, (20, 30), dtype))
    np.testing.assert_array_equal(observe(numbers), numbers.ravel())


def test_more_states_than_a_vector_may_have_numbers_are_refused():
    assert observer_for(gym.spaces.Discrete(LONGEST_VECTOR))(7).argmax() == 7
    with pytest.raises(UserError, match=r"^cannot use observations of Discrete\(1000000\)"):
        observer_for(gym.spaces.Discrete(1_000_000))


BOX = gym.spaces.Box(0, 255, (210, 160, 3), np.uint8)
SPEED = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
RESIZED = "pictures of shape (210, 160, 3) as 84x84 pixels, grey (env.image_size, env.grayscale)"


INNER = gym.spaces.Dict(camera=BOX, speed=SPEED)
OF_INNER = f"{RESIZED}; of the Dict only camera, not speed (env.observation_key)"


@pytest.mark.parametrize(
    ("space", "wanted", "told"),
    [
        (BOX, {}, RESIZED), (INNER, {}, OF_INNER), (gym.spaces.Dict(front=BOX), {}, RESIZED),
        (gym.spaces.Dict(front=INNER, back=INNER), {"key": "front"},
         f"{OF_INNER}; of the Dict only front, not back (env.observation_key)"),
        (BOX, {"size": (60, 80), "grayscale": False},
         RESIZED.replace("84x84 pixels, grey", "60x80 pixels, in colours")),
        (SPEED, {}, "a vector of 2 numbers"),
        (gym.spaces.Dict(a=SPEED, b=SPEED), {}, "a vector of 4 numbers"),
    ],
)
def test_what_the_agent_sees_is_told(
    space: gym.Space[Any], wanted: dict[str, Any], told: str
) -> None:
    assert sight(space, observer_for(space, **wanted)) == told


def test_a_dict_that_is_too_large_names_the_setting_that_selects_an_entry() -> None:
    costmap = gym.spaces.Box(0.0, 1.0, (300, 300, 5), np.float32)
    space = gym.spaces.Dict({"costmap": costmap, "scan": gym.spaces.Box(0.0, 9.0, (360,))})
    with pytest.raises(UserError, match=r"env\.observation_key selects one entry"):
        observer_for(space)
    assert observer_for(space, "scan").shape == (360,)


class Mission(gym.Space[str]):
    """A space of an environment's own, which says nothing about its numbers."""


def test_codes_of_cells_are_seen_as_numbers_unless_colours_are_wanted() -> None:
    space = gym.spaces.Box(0, 10, (7, 7, 3), np.uint8)
    codes = space.sample()
    seen = observer_for(space)(codes)
    np.testing.assert_allclose(seen, codes.ravel() / 10.0, rtol=1e-6)
    assert observer_for(space, size=(7, 7), grayscale=False).shape == (7, 7, 3)


def test_an_entry_of_an_unknown_kind_is_left_out_or_the_dict_refused() -> None:
    picture = gym.spaces.Box(0, 255, (7, 7, 3), np.uint8)
    seen = gym.spaces.Dict({"image": picture, "mission": Mission()})
    assert "not mission" in sight(seen, observer_for(seen))
    with pytest.raises(UserError, match=r"env\.observation_key selects one entry"):
        observer_for(gym.spaces.Dict({"speed": gym.spaces.Box(0, 1, (2,)), "mission": Mission()}))


def test_the_entries_of_a_dict_may_be_numbered() -> None:
    space = gym.spaces.Dict({0: BOX, 1: BOX})
    with pytest.raises(UserError, match="cannot choose among the pictures 0, 1 of"):
        observer_for(space)
    assert "of the Dict only 1, not 0" in sight(space, observer_for(space, "1"))
    assert observer_for(space, "1")(space.sample()).shape == GREY


@pytest.mark.parametrize(("space", "said"), [
    (gym.spaces.Dict(left=BOX, right=BOX), "Dict"), (gym.spaces.Text(3), "Text"),
    (gym.spaces.Sequence(gym.spaces.Discrete(3)), "Sequence"),
    (gym.spaces.Tuple([BOX, BOX]), "Tuple"),
    (gym.spaces.Box(0, 255, (96, 128, 2), np.uint8), "Box"),
    (gym.spaces.Box(0.0, np.inf, (96, 128, 3), np.float32), "Box.*finite bounds"),
    (gym.spaces.Box(-np.inf, np.inf, (84, 84, 3), np.float32), "Box.*finite bounds"),
    (gym.spaces.Box(0.0, 1.0, (3, 8, 8), np.float32), "Box.*sides of 16 or more"),
    (gym.spaces.Box(0.0, 1.0, (4, 84, 84), np.float32), r"Box.*env\.frame_stack"),
    (gym.spaces.Box(0, 255, (4, 84, 84), np.uint8), r"Box.*env\.frame_stack"),
    (gym.spaces.Box(0, 255, (84, 84, 3, 4), np.uint8), r"Box.*env\.frame_stack"),
    (gym.spaces.Box(0.0, 1.0, (0,)), "no numbers"), (gym.spaces.Tuple([]), "no numbers"),
    (gym.spaces.Dict(a=gym.spaces.Box(0.0, 1.0, (2, 0))), "no numbers"),
])
def test_what_cannot_be_seen_is_refused_with_what_it_lacks(
    space: gym.Space[Any], said: str
) -> None:
    with one_line(said):
        observer_for(space)
