"""The two kinds of action, as the rest of the program sees them.

Inside rtagent a discrete action is an index 0 .. n-1 (int32) and a continuous one a flat float32
vector. The environment's own numbering (`Discrete.start`) and shape appear in two places only:
where an action is handed to the environment, and where a user wrote one down.
"""

from __future__ import annotations

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


Actions: TypeAlias = "DiscreteActions | BoxActions"


def actions_for(space: gym.Space[Any]) -> Actions:
    """The action kind of a space.

    Raises:
        UserError: names the space if it is neither Discrete nor a Box of floats.
    """
    if isinstance(space, gym.spaces.Discrete):
        return DiscreteActions(space)
    if isinstance(space, gym.spaces.Box) and np.issubdtype(space.dtype, np.floating):
        return BoxActions(space)
    raise UserError(
        f"cannot act in {' '.join(repr(space).split())}: expected Discrete or a Box of floats"
    )
