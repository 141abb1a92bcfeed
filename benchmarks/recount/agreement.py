"""Whether a reported figure agrees with what was counted a second time, from outside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

TOLERANCE = 0.005

Found = dict[str, Any]
"""Counted figures by their paths."""


@dataclass(frozen=True)
class Between:
    """A figure of which only bounds are known: it was reported between two counts."""

    low: float
    high: float


@dataclass(frozen=True)
class OneOf:
    """A figure that had one of these values between two counts."""

    values: tuple[Any, ...]


def spread(path: str, values: Sequence[float]) -> Found:
    """Median, 99th percentile and largest value; None for each if there are no values."""
    found: list[float | None] = [None] * 3
    if len(values):
        found = [*np.percentile(values, (50, 99)).tolist(), float(max(values))]
    return {f"{path}.{name}": each for name, each in zip(("p50", "p99", "max"), found, strict=True)}


def agrees(said: Any, counted: list[Any], slack: int = 0) -> bool:
    """Whether a reported figure is what was counted, at one of several moments or between them.

    Args:
        said: the reported figure.
        counted: the figure at each moment.
        slack: difference of a number that is allowed in any case.
    """
    if said is None or isinstance(said, str | bool):
        return said in [each for value in counted for each in values(value)]
    if all(isinstance(each, OneOf) for each in counted):
        return any(agrees(said, [value]) for each in counted for value in each.values)
    numbers = [each for value in counted for each in ends(value)]
    if not numbers:
        return False
    low, high = min(numbers), max(numbers)
    spare = max(slack, TOLERANCE * max(abs(low), abs(high)))
    return bool(low - spare <= said <= high + spare)


def values(value: Any) -> tuple[Any, ...]:
    """The values that a report may have."""
    return value.values if isinstance(value, OneOf) else (value,)


def ends(value: Any) -> tuple[float, ...]:
    """The numbers between which a figure lies; empty if it is not a number."""
    if isinstance(value, Between):
        return value.low, value.high
    if isinstance(value, OneOf):
        return tuple(number for each in value.values for number in ends(each))
    return () if value is None or isinstance(value, str | bool) else (value,)


def merged(counted: list[Any]) -> Any:
    """What was counted at all moments, as one value or as two bounds."""
    numbers = [float(each) for value in counted for each in ends(value)]
    if not numbers:
        return values(counted[0])[0]
    low, high = min(numbers), max(numbers)
    return low if low == high else [low, high]
