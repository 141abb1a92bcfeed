"""Points of a run's curves, and the interface of a library that takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol


class Point(NamedTuple):
    """Several scalars of one moment.

    Attributes:
        wall_time: seconds since 1970.
        step: the tick, at least 0.
        values: by name, `group/name`.
    """

    wall_time: float
    step: int
    values: Mapping[str, float]


class Library(Protocol):
    """A library behind a `Background` sink, used in its thread; calls may wait and raise."""

    def write(self, points: Sequence[Point]) -> None: ...

    def close(self) -> None: ...
