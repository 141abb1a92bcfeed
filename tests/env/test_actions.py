"""An environment's kind of action can be unpickled where the environment's code is missing."""

import pickle

import gymnasium as gym
import numpy as np
import pytest

from rtagent.env.actions import actions_for
from tests.refused import one_line


def own(kind):
    """A space of a class that cannot be imported."""
    return type("Own", (kind,), {})


@pytest.mark.parametrize(
    ("space", "value", "index"),
    [
        (own(gym.spaces.Discrete)(3, start=1), 3, 2),
        (own(gym.spaces.Box)(-1.0, 1.0, (2, 1), np.float64), [[0.5], [1.0]], [0.5, 1.0]),
        (own(gym.spaces.MultiDiscrete)([3, 2]), [2, 1], 5),
        (own(gym.spaces.MultiBinary)((2, 2)), [[0, 0], [1, 1]], 3),
    ],
)
def test_actions_travel_without_the_environments_code(space, value, index):
    here = actions_for(space)
    there = pickle.loads(pickle.dumps(here))
    for actions in (here, there):
        action = actions.accept(value, strict=True)
        np.testing.assert_array_equal(action, index)
        handed = actions.for_environment(action)
        np.testing.assert_array_equal(handed, value)
        assert np.asarray(handed).dtype == space.dtype


@pytest.mark.parametrize("space", [
    gym.spaces.Box(-1.0, 1.0, (60,), np.float32),
    gym.spaces.Box(-1.0, 1.0, (5, 12), np.float32),
    gym.spaces.MultiDiscrete([1] * 60),
])
def test_what_is_wrong_with_many_numbers_is_one_line(space):
    for value in ([2.0] * 60, [np.nan] * 60, np.full(60, 2.0), [2.0]):
        with one_line(error=ValueError):
            actions_for(space).accept(value, strict=True)


def test_the_utmost_of_doubles_is_not_beyond_the_bounds():
    space = gym.spaces.Box(np.array([-0.3, -0.1]), np.array([0.1, 0.3]), dtype=np.float64)
    actions = actions_for(space)
    for wanted in ([9.0, 9.0], [-9.0, -9.0]):
        handed = actions.for_environment(np.float32(wanted))
        assert space.contains(handed)
        np.testing.assert_allclose(handed, np.clip(wanted, space.low, space.high), rtol=1e-7)
