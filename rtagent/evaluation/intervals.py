"""95 % confidence intervals of figures over episodes or seeds, by Student's t."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

CONFIDENCE = 0.95
ANGLES = 20_001


@cache
def student(count: int) -> float:
    """Two-sided quantile of Student's t for the mean of `count` values, two at least.

    With t = sqrt(df) tan(a), the density of the angle a is proportional to cos(a)^(df - 1): an
    integral over a finite range, here by trapezoids.
    """
    df = count - 1
    angles = np.linspace(0.0, math.pi / 2, ANGLES)
    density = np.cos(angles) ** (df - 1)
    below = np.append(0.0, np.cumsum(density[1:] + density[:-1]))
    return math.sqrt(df) * math.tan(float(np.interp(CONFIDENCE, below / below[-1], angles)))


class Estimate(NamedTuple):
    """A figure, and half of its 95 % interval; None for a figure of a single value."""

    value: float
    half_interval: float | None


def jackknife(figure: Callable[..., float], *samples: npt.NDArray[Any]) -> Estimate:
    """A figure of episodes, and its 95 % interval by leaving one out at a time.

    For a mean this is the usual interval of Student's t; for a ratio of sums it is that of the
    delta method. What belongs to one episode in all samples is left out together, so what the
    samples have in common does not widen the interval of a difference.

    Args:
        figure: of the samples, each with the same episodes left out.
        samples: (episodes, ...) each.
    """
    count, value = len(samples[0]), float(figure(*samples))
    if count < 2:
        return Estimate(value, None)
    without = np.array([
        figure(*(np.delete(sample, index, axis=0) for sample in samples)) for index in range(count)
    ])
    error = math.sqrt((count - 1) / count * float(((without - without.mean()) ** 2).sum()))
    return Estimate(value, student(count) * error)
