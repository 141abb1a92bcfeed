import gymnasium as gym
import numpy as np
import pytest

from rtagent.env.observer_choice import observer_for
from rtagent.env.observers import GREY, SIDE, EnvironmentFault, NotFinite, to_grey


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
