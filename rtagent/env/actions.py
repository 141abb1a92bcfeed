"""The two kinds of action, as the rest of the program sees them.

Inside rtagent a discrete action is an index 0 .. n-1 (int32) and a continuous one a flat float32
vector. The environment's own numbering (`Discrete.start`) and shape appear in two places only:
where an action is handed to the environment, and where a user wrote one down.

MultiDiscrete and MultiBinary actions are discrete ones, too, while they have few combinations: each
is an action of its own. More of them, Tuple and Dict are refused.

The kind of an environment's actions goes, pickled, into the blueprint of a run, so that the
supervisor can check what a user writes. So it keeps nothing of the environment's own code: its
spaces are Gymnasium's, never a class of the environment's.
"""

from __future__ import annotations

import math
import operator
from typing import Any, Protocol, TypeAlias

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rtagent.errors import UserError

Action: TypeAlias = "int | NDArray[np.float32]"


class Actions(Protocol):
    """One kind of action.

    Attributes:
        agent_space: Discrete(n) from 0, or a flat Box.
        shape: () for indices, (number of values,) for vectors.
        dtype: int32 or float32.
        zero: the noop of an environment that does not name one: index 0, or the values nearest to
            zero that the bounds allow.
    """

    agent_space: gym.spaces.Discrete | gym.spaces.Box
    shape: tuple[int, ...]
    dtype: str
    zero: Action

    def accept(self, value: Any, *, strict: bool = False) -> Action:
        """The action that a user gave in the environment's own numbers.

        Args:
            value: a whole number, or one for each choice; for a Box, numbers in its shape or flat.
            strict: refuse values outside the bounds of a Box; otherwise they are clipped.

        Raises:
            ValueError: says why the value is not an action of this environment.
        """

    def for_environment(self, action: Any) -> Any:
        """An index or a flat vector as the environment takes it; a vector is clipped.

        Raises:
            ValueError: there is no such index, a value is not finite, or the shape is wrong.
        """


class DiscreteActions(Actions):
    """A choice among n actions."""

    def __init__(self, space: gym.spaces.Discrete) -> None:
        self._count, self._first = int(space.n), int(space.start)
        self.agent_space = gym.spaces.Discrete(self._count)
        self.shape, self.dtype, self.zero = (), "int32", 0

    def accept(self, value: Any, *, strict: bool = False) -> int:
        try:
            index = operator.index(value) - self._first
        except TypeError:
            raise _refused(f"expected a whole number, got {value!r}") from None
        if not 0 <= index < self._count:
            last = self._first + self._count - 1
            raise _refused(f"{value} is outside {self._first} to {last}")
        return index

    def for_environment(self, action: Any) -> int:
        index = int(action)
        if not 0 <= index < self._count:
            raise _refused(f"action {index} is outside 0 to {self._count - 1}")
        return self._first + index


class CombinedActions(Actions):
    """Several choices at once, each combination an action; the last choice changes fastest."""

    def __init__(self, space: gym.spaces.MultiDiscrete | gym.spaces.MultiBinary) -> None:
        self._space_name, self._sizes = repr(space), _sizes(space)
        self._shape, self._dtype = space.shape, space.dtype
        self._first = np.ravel(getattr(space, "start", np.zeros(space.shape, int)))
        self.agent_space = gym.spaces.Discrete(math.prod(self._sizes))
        self.shape, self.dtype, self.zero = (), "int32", 0

    def accept(self, value: Any, *, strict: bool = False) -> int:
        numbers = np.asarray(value)
        if numbers.dtype.kind not in "biuf" or numbers.size != len(self._sizes):
            raise _refused(f"expected {len(self._sizes)} whole numbers, got {value!r}")
        choices = numbers.ravel() - self._first
        if not ((choices >= 0) & (choices < self._sizes) & (choices % 1 == 0)).all():
            raise _refused(f"{value} is not in {self._space_name}")
        return int(np.ravel_multi_index(tuple(choices.astype(int)), self._sizes))

    def for_environment(self, action: Any) -> NDArray[Any]:
        choices = np.array(np.unravel_index(int(action), self._sizes)) + self._first
        return np.asarray(choices.reshape(self._shape), self._dtype)


class BoxActions(Actions):
    """A point in a box: a flat vector for the agent, the space's shape for the environment."""

    def __init__(self, space: gym.spaces.Box) -> None:
        self._space = gym.spaces.Box(space.low, space.high, space.shape, space.dtype.type)
        low, high = (each.ravel().astype(np.float32) for each in (space.low, space.high))
        self.agent_space = gym.spaces.Box(low, high, dtype=np.float32)
        self.shape, self.dtype = (math.prod(space.shape),), "float32"
        self.zero = self.accept(np.zeros(space.shape))

    def accept(self, value: Any, *, strict: bool = False) -> NDArray[np.float32]:
        space = self._space
        try:
            values = np.asarray(value, dtype=np.float32)
        except (TypeError, ValueError):
            raise _refused(f"expected numbers, got {value!r}") from None
        if values.shape not in (self.shape, space.shape):
            shapes = " or ".join(map(str, dict.fromkeys((self.shape, space.shape))))
            raise _refused(f"expected shape {shapes}, got {values.shape}")
        if not np.isfinite(values).all():
            raise _refused(f"{value} is not finite")
        values = values.reshape(space.shape)
        clipped = np.clip(values, space.low, space.high).astype(np.float32)
        if strict and not np.array_equal(clipped, values):
            raise _refused(f"{value} is outside {space.low} to {space.high}")
        return clipped.ravel()

    def for_environment(self, action: Any) -> NDArray[Any]:
        space = self._space
        values = self.accept(action).reshape(space.shape).astype(space.dtype)
        # The float32 next to a bound of doubles may lie beyond it.
        return np.asarray(np.clip(values, space.low, space.high))


MOST_ACTIONS = 65_536
"""A network has an output for each."""
MOST_COMBINATIONS = 64
"""Among more actions, their values could hardly tell the better from the worse."""
MOST_BOUND = np.float64(np.finfo(np.float32).max) / 2.0
"""Policies compute with the sum and the distance of two bounds, in float32.

Not a Python float, which a comparison with float16 would make infinite."""


def actions_for(space: gym.Space[Any]) -> Actions:
    """The kind of action that a space has.

    Raises:
        UserError: names the space if its actions cannot be used.
    """
    reason = "expected Discrete or a Box of floats"
    if isinstance(space, gym.spaces.Discrete):
        if space.n <= MOST_ACTIONS:
            return DiscreteActions(space)
        reason = f"{MOST_ACTIONS} actions are the most"
    if isinstance(space, gym.spaces.Box) and np.issubdtype(space.dtype, np.floating):
        if (np.abs([space.low, space.high]) <= MOST_BOUND).all():
            return BoxActions(space)
        reason = f"each value needs finite bounds, at most {MOST_BOUND:.2g}"
    if isinstance(space, gym.spaces.MultiDiscrete | gym.spaces.MultiBinary):
        combinations = math.prod(_sizes(space))
        if combinations <= MOST_COMBINATIONS:
            return CombinedActions(space)
        reason = (
            f"it has {combinations} combinations, {MOST_COMBINATIONS} are the most; let a "
            "gymnasium.ActionWrapper offer those that matter as a Discrete"
        )
    raise UserError(f"cannot act in {' '.join(repr(space).split())}: {reason}")


def _sizes(space: gym.spaces.MultiDiscrete | gym.spaces.MultiBinary) -> tuple[int, ...]:
    """The number of options of each choice."""
    if isinstance(space, gym.spaces.MultiDiscrete):
        return tuple(int(size) for size in space.nvec.ravel())
    return (2,) * math.prod(space.shape)


def _refused(reason: str) -> ValueError:
    """An error whose reason is one line, although NumPy breaks long arrays into several."""
    return ValueError(" ".join(reason.split()))
