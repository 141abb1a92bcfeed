from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rtagent.env.preprocess import (
    GREY,
    LONGEST_VECTOR,
    SIDE,
    EnvironmentFault,
    NotFinite,
    observer_for,
    sight,
    to_grey,
)
from rtagent.errors import UserError


def slow_area_mean(grey):
    """Each output pixel is the mean of the rectangle of the input that it covers."""

    def weights(length):
        table = np.zeros((SIDE, length))
        for out in range(SIDE):
            first, last = out * length / SIDE, (out + 1) * length / SIDE
            for source in range(length):
                table[out, source] = max(0.0, min(last, source + 1) - max(first, source))
        return table / table.sum(axis=1, keepdims=True)

    height, width = grey.shape
    return weights(height) @ grey @ weights(width).T


@pytest.mark.parametrize("shape", [(144, 160), (210, 160), (168, 168), (97, 301)])
def test_shrinking_is_the_mean_of_the_covered_area(shape):
    picture = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    assert np.abs(to_grey(picture) - slow_area_mean(picture)).max() <= 1.0


def test_colours_count_by_luminance():
    picture = np.random.default_rng(1).integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
    luminance = picture @ np.array([0.299, 0.587, 0.114])
    assert np.abs(to_grey(picture) - luminance).max() <= 1.0


def test_one_channel_is_taken_as_it_is():
    picture = np.random.default_rng(2).integers(0, 256, (144, 160, 1), dtype=np.uint8)
    np.testing.assert_array_equal(to_grey(picture), to_grey(picture[..., 0]))
    full = picture[:SIDE, :SIDE]
    np.testing.assert_array_equal(to_grey(full), full[..., 0])


def test_small_pictures_are_enlarged_and_the_source_is_not_changed():
    np.testing.assert_array_equal(to_grey(np.full((10, 12), 77, np.uint8)), np.full(GREY, 77))
    picture = np.random.default_rng(3).integers(0, 256, (144, 160, 3), dtype=np.uint8)
    before = picture.copy()
    to_grey(picture)
    np.testing.assert_array_equal(picture, before)


@pytest.mark.parametrize(
    ("low", "high", "dtype"),
    [(0.0, 1.0, np.float32), (-1.0, 1.0, np.float64), (0, 65535, np.uint16), (0, 255, np.int32)],
)
@pytest.mark.parametrize("layout", [(0, 1, 2), (2, 0, 1)])
def test_other_numbers_are_scaled_by_their_bounds(low, high, dtype, layout):
    levels = np.random.default_rng(4).integers(0, 256, (SIDE, SIDE, 3)).transpose(layout)
    picture = (low + levels * ((high - low) / 255.0)).astype(dtype)
    observe = observer_for(gym.spaces.Box(low, high, picture.shape, dtype))
    colours_last = levels if layout == (0, 1, 2) else np.moveaxis(levels, 0, 2)
    wanted = to_grey(np.ascontiguousarray(colours_last, np.uint8))
    assert np.abs(observe(picture).astype(int) - wanted).max() <= 1


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


def test_opacity_is_ignored():
    picture = np.random.default_rng(5).integers(0, 256, (30, 40, 4), dtype=np.uint8)
    np.testing.assert_array_equal(to_grey(picture), to_grey(picture[..., :3].copy()))


@pytest.mark.parametrize("shape", [(120, 160, 3), (3, 120, 160), (120, 160, 4)])
def test_colours_stay_where_they_are_wanted(shape):
    first = shape[0] == 3
    picture = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    observe = observer_for(gym.spaces.Box(0, 255, shape, np.uint8), size=(60, 80), grayscale=False)
    assert (observe.shape, observe.dtype, observe.screen) == ((60, 80, 3), "uint8", True)
    frame = observe(picture)
    rgb = np.moveaxis(picture, 0, 2) if first else picture[..., :3]
    means = rgb.reshape(60, 2, 80, 2, 3).mean(axis=(1, 3))
    assert np.abs(frame - means).max() <= 1.0


def test_pictures_of_another_size():
    space = gym.spaces.Box(0, 255, (120, 160, 3), np.uint8)
    observe = observer_for(space, size=(60, 80))
    assert observe.shape == (60, 80)
    picture = np.random.default_rng(0).integers(0, 256, (120, 160, 3), dtype=np.uint8)
    np.testing.assert_array_equal(observe(picture), to_grey(picture, (60, 80)))
    assert observe(picture).shape == (60, 80)
    inside = observer_for(gym.spaces.Dict(camera=space), size=(30, 40), grayscale=False)
    assert inside.shape == (30, 40, 3)
    assert inside({"camera": picture}).shape == (30, 40, 3)


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


@pytest.mark.parametrize(
    ("space", "observation"),
    [
        (gym.spaces.MultiDiscrete([[3], [3]]), np.array([[3], [0]])),
        (gym.spaces.MultiDiscrete([3, 3]), np.array([4, 0])),
        (gym.spaces.MultiDiscrete([3, 3]), np.array([0, -1])),
        (gym.spaces.MultiDiscrete([3, 3]), np.array([1])),
        (gym.spaces.Tuple([gym.spaces.Discrete(3)]), (np.array([0, 1]),)),
        (gym.spaces.MultiDiscrete([3, 3], start=[5, 0]), np.array([4, 0])),
        (gym.spaces.Tuple([gym.spaces.Discrete(3), gym.spaces.Discrete(2)]), (-1, 0)),
        (gym.spaces.Tuple([gym.spaces.Discrete(3), gym.spaces.Discrete(2)]), (0, 2)),
        (gym.spaces.Dict(a=gym.spaces.Tuple([gym.spaces.Discrete(3, start=2)])), {"a": (1,)}),
        (gym.spaces.Discrete(3), 1.7),
        (gym.spaces.Tuple([gym.spaces.Discrete(3)]), (1.5,)),
        (gym.spaces.MultiBinary(3), np.array([0, 2, 1])),
        (gym.spaces.MultiBinary(3), np.array([0.0, 0.5, 1.0])),
    ],
)
def test_a_choice_that_a_space_does_not_have_is_a_fault(space, observation):
    observe = observer_for(space)
    for _ in range(20):
        assert set(observe(space.sample())) <= {0.0, 1.0}
    with pytest.raises(EnvironmentFault, match="not of its space"):
        observe(observation)


def whole(size, high=255, dtype=np.uint8):
    return gym.spaces.Box(0, high, (size,), dtype)


def test_entries_keep_their_numbers_whatever_type_their_space_has() -> None:
    observe = observer_for(gym.spaces.Dict(a=whole(2), b=whole(1, 9, np.int32)))
    assert observe({"a": np.array([300, 4]), "b": np.array([0.75])}).tolist() == [300, 4, 0.75]


def test_an_entry_of_one_number_may_be_the_number_itself() -> None:
    observe = observer_for(gym.spaces.Dict(a=whole(1), b=whole(2)))
    assert observe({"a": 7, "b": np.array([[1, 2]])}).tolist() == [7, 1, 2]


def test_a_nan_in_an_entry_of_whole_numbers_is_noticed() -> None:
    observe = observer_for(gym.spaces.Dict(a=whole(2, 9, np.int32)))
    with pytest.raises(NotFinite):
        observe({"a": np.array([1.0, np.nan])})


def test_the_numbers_of_an_entry_are_not_taken_for_those_of_the_next() -> None:
    observe = observer_for(gym.spaces.Dict(a=whole(2), b=whole(2)))
    with pytest.raises(EnvironmentFault, match="not of its space"):
        observe({"a": np.zeros(1, np.uint8), "b": np.zeros(3, np.uint8)})


BOX = gym.spaces.Box(0, 255, (210, 160, 3), np.uint8)
SPEED = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
RESIZED = "pictures of shape (210, 160, 3) as 84x84 pixels, grey (env.image_size, env.grayscale)"


@pytest.mark.parametrize(
    ("space", "told"),
    [
        (BOX, RESIZED),
        (gym.spaces.Dict(camera=BOX, speed=SPEED),
         f"{RESIZED}; of the Dict only camera, not speed (env.observation_key)"),
        (gym.spaces.Dict(front=BOX), RESIZED),
        (SPEED, "a vector of 2 numbers"),
        (gym.spaces.Dict(a=SPEED, b=SPEED), "a vector of 4 numbers"),
    ],
)
def test_what_the_agent_sees_is_told(space: gym.Space[Any], told: str) -> None:
    assert sight(space, observer_for(space)) == told


def test_colours_and_sizes_are_told() -> None:
    observer = observer_for(BOX, size=(60, 80), grayscale=False)
    assert "as 60x80 pixels, in colours" in sight(BOX, observer)


def test_a_dict_that_is_too_large_names_the_setting_that_selects_an_entry() -> None:
    costmap = gym.spaces.Box(0.0, 1.0, (300, 300, 5), np.float32)
    space = gym.spaces.Dict({"costmap": costmap, "scan": gym.spaces.Box(0.0, 9.0, (360,))})
    with pytest.raises(UserError, match=r"env\.observation_key selects one entry"):
        observer_for(space)
    assert observer_for(space, "scan").shape == (360,)


def test_what_is_seen_of_a_dict_in_a_dict_is_told() -> None:
    inner = gym.spaces.Dict(camera=BOX, speed=SPEED)
    space = gym.spaces.Dict(front=inner, back=inner)
    assert sight(space, observer_for(space, "front")) == (
        f"{RESIZED}; of the Dict only camera, not speed (env.observation_key); "
        "of the Dict only front, not back (env.observation_key)"
    )


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


@pytest.mark.parametrize(("space", "advice"), [
    (gym.spaces.Box(-np.inf, np.inf, (84, 84, 3), np.float32), "finite bounds"),
    (gym.spaces.Box(0.0, 1.0, (3, 8, 8), np.float32), "sides of 16 or more"),
    (gym.spaces.Box(0.0, 1.0, (4, 84, 84), np.float32), "env.frame_stack"),
    (gym.spaces.Box(0, 255, (84, 84, 3, 4), np.uint8), "env.frame_stack"),
])
def test_the_refusal_says_what_a_picture_lacks(space: gym.Space[Any], advice: str) -> None:
    with pytest.raises(UserError, match=advice):
        observer_for(space)
