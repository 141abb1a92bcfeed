"""The two kinds of action, as the rest of the program sees them.

Inside rtagent a discrete action is an index 0 .. n-1 (int32) and a continuous one a flat float32
vector. The environment's own numbering (`Discrete.start`) and shape appear in two places only:
where an action is handed to the environment, and where a user wrote one down.

MultiDiscrete and MultiBinary actions are discrete ones, too, while they have few combinations: each
is an action of its own. More of them, Tuple and Dict are refused.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rtagent.errors import UserError

Action: TypeAlias = "int | NDArray[np.float32]"


@dataclass(frozen=True)
class DiscreteActions:
    """A choice among n: `space` is the environment's, `agent_space` starts at 0."""

    space: gym.spaces.Discrete

    dtype = "int32"
    shape: tuple[int, ...] = ()

    @property
    def agent_space(self) -> gym.spaces.Discrete:
        """The space of indices."""
        return gym.spaces.Discrete(int(self.space.n))

    @property
    def zero(self) -> int:
        """The action to fall back on when the environment names no noop."""
        return 0

    def accept(self, value: Any, *, strict: bool = False) -> int:
        """Index of an action in the environment's own numbering.

        Args:
            value: a whole number.
            strict: makes no difference here: an action that does not exist is always refused.

        Raises:
            ValueError: says why the value is not an action of this environment.
        """
        try:
            index = operator.index(value) - self._first
        except TypeError:
            raise ValueError(f"expected a whole number, got {value!r}") from None
        if not 0 <= index < self.space.n:
            last = self._first + int(self.space.n) - 1
            raise ValueError(f"{value} is outside {self._first} to {last}")
        return index

    def for_environment(self, action: Any) -> int:
        """The environment's number of the action with this index.

        Raises:
            ValueError: there is no such index.
        """
        index = int(action)
        if not 0 <= index < self.space.n:
            raise ValueError(f"action {index} is outside 0 to {int(self.space.n) - 1}")
        return self._first + index

    @property
    def _first(self) -> int:
        return int(self.space.start)


@dataclass(frozen=True)
class CombinedActions:
    """Several choices at once, each combination an action; the last choice changes fastest."""

    space: gym.spaces.MultiDiscrete | gym.spaces.MultiBinary

    dtype = "int32"
    shape: tuple[int, ...] = ()

    @property
    def agent_space(self) -> gym.spaces.Discrete:
        """The space of indices."""
        return gym.spaces.Discrete(math.prod(self._sizes))

    @property
    def zero(self) -> int:
        """The first of every choice."""
        return 0

    def accept(self, value: Any, *, strict: bool = False) -> int:
        """Index of an action in the environment's own numbers.

        Args:
            value: a whole number for each choice.
            strict: makes no difference here: an action that does not exist is always refused.

        Raises:
            ValueError: says why the value is not an action of this environment.
        """
        numbers = np.asarray(value)
        if numbers.dtype.kind not in "biuf" or numbers.size != len(self._sizes):
            raise ValueError(f"expected {len(self._sizes)} whole numbers, got {value!r}")
        choices = numbers.ravel() - self._first
        if not ((choices >= 0) & (choices < self._sizes) & (choices % 1 == 0)).all():
            raise ValueError(f"{value} is not in {self.space}")
        return int(np.ravel_multi_index(tuple(choices.astype(int)), self._sizes))

    def for_environment(self, action: Any) -> NDArray[Any]:
        """The environment's numbers of the action with this index.

        Raises:
            ValueError: there is no such index.
        """
        choices = np.array(np.unravel_index(int(action), self._sizes)) + self._first
        numbers: NDArray[Any] = choices.reshape(self.space.shape).astype(self.space.dtype)
        return numbers

    @property
    def _sizes(self) -> tuple[int, ...]:
        return _sizes(self.space)

    @property
    def _first(self) -> NDArray[Any]:
        return np.ravel(getattr(self.space, "start", np.zeros(self.space.shape, int)))


@dataclass(frozen=True)
class BoxActions:
    """A point in a box: flat for the agent, in the environment's shape and bounds outside."""

    space: gym.spaces.Box

    dtype = "float32"

    @property
    def shape(self) -> tuple[int, ...]:
        """(number of values,)."""
        return (int(np.prod(self.space.shape)),)

    @property
    def agent_space(self) -> gym.spaces.Box:
        """The flat space."""
        low, high = self.space.low.ravel(), self.space.high.ravel()
        return gym.spaces.Box(low.astype(np.float32), high.astype(np.float32), dtype=np.float32)

    @property
    def zero(self) -> NDArray[np.float32]:
        """Zeros, or the values nearest to zero that the bounds allow."""
        return self.accept(np.zeros(self.space.shape))

    def accept(self, value: Any, *, strict: bool = False) -> NDArray[np.float32]:
        """Flat vector of an action that has the environment's shape or is flat.

        Args:
            value: numbers.
            strict: refuse what lies outside the bounds; otherwise it is clipped.

        Raises:
            ValueError: says why the value is not an action of this environment.
        """
        try:
            values = np.asarray(value, dtype=np.float32)
        except (TypeError, ValueError):
            raise ValueError(f"expected numbers, got {value!r}") from None
        if values.shape != self.space.shape and values.shape != self.shape:
            raise ValueError(f"expected shape {self.space.shape}, got {values.shape}")
        if not np.isfinite(values).all():
            raise ValueError(f"{value} is not finite")
        values = values.reshape(self.space.shape)
        clipped = np.clip(values, self.space.low, self.space.high).astype(np.float32)
        if strict and not np.array_equal(clipped, values):
            raise ValueError(f"{value} is outside {self.space.low} to {self.space.high}")
        return clipped.ravel()

    def for_environment(self, action: Any) -> NDArray[Any]:
        """The action in the environment's shape and type, clipped to its bounds.

        Raises:
            ValueError: a value is NaN, or the shape is wrong.
        """
        return self.accept(action).reshape(self.space.shape).astype(self.space.dtype)


Actions: TypeAlias = "DiscreteActions | CombinedActions | BoxActions"

MOST_COMBINATIONS = 64
"""More of them could hardly be told apart by their values."""


def actions_for(space: gym.Space[Any]) -> Actions:
    """The action kind of a space.

    Raises:
        UserError: names the space if it is none of those that can be used.
    """
    if isinstance(space, gym.spaces.Discrete):
        return DiscreteActions(space)
    if isinstance(space, gym.spaces.Box) and np.issubdtype(space.dtype, np.floating):
        return BoxActions(space)
    reason = "expected Discrete or a Box of floats"
    if isinstance(space, gym.spaces.MultiDiscrete | gym.spaces.MultiBinary):
        combinations = math.prod(_sizes(space))
        if combinations <= MOST_COMBINATIONS:
            return CombinedActions(space)
        reason = f"it has {combinations} combinations, {MOST_COMBINATIONS} are the most"
    raise UserError(f"cannot act in {' '.join(repr(space).split())}: {reason}")


def _sizes(space: gym.spaces.MultiDiscrete | gym.spaces.MultiBinary) -> tuple[int, ...]:
    """How many there are to choose from, for each choice."""
    if isinstance(space, gym.spaces.MultiDiscrete):
        return tuple(int(size) for size in space.nvec.ravel())
    return (2,) * math.prod(space.shape)
