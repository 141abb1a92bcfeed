"""Inference times of the simulator: distributions, and scripted slowdowns.

The mean that is given is that of `constant`, `gauss` and `lognormal`. The others start from it, and
the mean over a run is larger.

| distribution | meaning of `spread` |
|---|---|
| constant | none |
| gauss | standard deviation, as a fraction of the mean |
| lognormal | sigma of the logarithm; the mean is kept |
| outliers | share of the outliers, or how much longer they take, see `outliers` |
| drift | the mean grows by this fraction up to the middle of the run, and back: half a sine |
| step | the mean grows by this fraction in the middle of the run |

The last three have 2 % standard deviation besides: without it, processes that start in step stay in
step for ever, which no real machine does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

USUAL_SPREAD = {
    "constant": 0.0, "gauss": 0.02, "lognormal": 0.5, "outliers": 0.01, "drift": 0.5, "step": 2.0
}
"""The spread of a simulation for which none is given, by distribution."""
DISTRIBUTIONS = tuple(USUAL_SPREAD)
OUTLIER_SHARE = 0.01
OUTLIER_FACTOR = 10.0
_BLOCK = 4096
_LEAST = 0.01
_NOISE = 0.02


@dataclass(frozen=True, slots=True)
class Slowdown:
    """Inferences started between the seconds `at` and `until` take `factor` times as long."""

    at: float
    until: float
    factor: float


def outliers(spread: float) -> tuple[float, float]:
    """Share and factor of the inferences that take much longer.

    Args:
        spread: below 1, their share, each taking 10 times as long; from 1 on, how many times as
            long 1 % of them take; 0: 1 % take 10 times as long.
    """
    if spread >= 1.0:
        return OUTLIER_SHARE, spread
    return (spread or OUTLIER_SHARE), OUTLIER_FACTOR


class InferenceTimes:
    """Draws inference times.

    Args:
        mean: seconds; see the module.
        distribution: one of `DISTRIBUTIONS`.
        spread: see the module.
        seconds: length of the run.
        slowdowns: scripted.
        rng: source of randomness.
    """

    def __init__(
        self, mean: float, distribution: str, spread: float, seconds: float,
        slowdowns: Sequence[Slowdown], rng: np.random.Generator,
    ) -> None:
        if distribution not in DISTRIBUTIONS:
            raise ValueError(
                f"distribution: {distribution!r} is none of {', '.join(DISTRIBUTIONS)}"
            )
        if spread < 0.0:
            raise ValueError("spread: must not be negative")
        self._mean, self._distribution, self._spread = mean, distribution, spread
        self._seconds, self._slowdowns = seconds, slowdowns
        self._factors = self._blocks(rng)

    def draw(self, now: float) -> float:
        """Inference time in seconds of an inference started at second `now`."""
        factor = next(self._factors)
        if self._distribution == "drift":
            factor *= 1.0 + self._spread * math.sin(math.pi * now / self._seconds)
        elif self._distribution == "step" and now >= self._seconds / 2.0:
            factor *= 1.0 + self._spread
        for slowdown in self._slowdowns:
            if slowdown.at <= now < slowdown.until:
                factor *= slowdown.factor
        return factor * self._mean

    def _blocks(self, rng: np.random.Generator) -> Iterator[float]:
        while True:
            yield from np.maximum(self._block(rng), _LEAST).tolist()

    def _block(self, rng: np.random.Generator) -> NDArray[np.float64]:
        match self._distribution:
            case "gauss":
                return rng.normal(1.0, self._spread, _BLOCK)
            case "lognormal":
                return rng.lognormal(-0.5 * self._spread**2, self._spread, _BLOCK)
            case "outliers":
                usual = rng.normal(1.0, _NOISE, _BLOCK)
                share, factor = outliers(self._spread)
                return np.where(rng.random(_BLOCK) < share, factor, 1.0) * usual
            case "drift" | "step":
                return rng.normal(1.0, _NOISE, _BLOCK)
            case _:
                return np.ones(_BLOCK)
