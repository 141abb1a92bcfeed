"""Whether returns rise or fall: a test, not an impression.

The newer half of the last episodes is compared with the older half by the rank sum test of Mann and
Whitney ("On a Test of Whether one of Two Random Variables is Stochastically Larger than the Other",
Annals of Mathematical Statistics 18, 1947), two-sided, in its normal approximation with ties. It is
asked again and again while a run goes on, so little chance is left to it: `MOST_CHANCE`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

EPISODES = 200
"""The newest ones, that are looked at."""
LEAST_EPISODES = 20
MOST_CHANCE = 0.001
"""A difference that chance makes at least as large more often than this is none."""


@dataclass(frozen=True)
class Trend:
    """How the newer half of some episodes compares with the older half.

    Attributes:
        episodes: in both halves.
        change: mean return of the newer half less that of the older.
        p_value: how often chance alone makes a difference at least as large.
    """

    episodes: int
    change: float
    p_value: float

    @property
    def direction(self) -> str:
        """`rising`, `falling`, or `steady` where the difference is not significant."""
        if self.p_value > MOST_CHANCE or self.change == 0.0:
            return "steady"
        return "rising" if self.change > 0.0 else "falling"


def trend(returns: npt.NDArray[np.float64]) -> Trend | None:
    """The trend of the newest returns.

    Args:
        returns: (n,) of finished episodes, oldest first; those that are not finite are left out.

    Returns:
        None for fewer than `LEAST_EPISODES`.
    """
    finite = returns[np.isfinite(returns)][-EPISODES:]
    half = len(finite) // 2
    if 2 * half < LEAST_EPISODES:
        return None
    older, newer = finite[len(finite) - 2 * half :][:half], finite[-half:]
    change = float(newer.mean() - older.mean())
    return Trend(2 * half, change, rank_sum_p(older, newer))


def rank_sum_p(one: npt.NDArray[np.float64], other: npt.NDArray[np.float64]) -> float:
    """The two-sided p value of the rank sum test, normal approximation, ties counted.

    Args:
        one: (n,) values.
        other: (m,) values.
    """
    n, m = len(one), len(other)
    _, where, ties = np.unique(
        np.concatenate([one, other]), return_inverse=True, return_counts=True
    )
    # Equal values share the mean of their ranks.
    ranks = (np.cumsum(ties) - (ties - 1) / 2.0)[where]
    u = float(ranks[:n].sum()) - n * (n + 1) / 2.0
    total = n + m
    variance = n * m / 12.0 * (total + 1 - float((ties**3 - ties).sum()) / (total * (total - 1)))
    if variance <= 0.0:
        return 1.0
    # Half a step towards the mean: u is a whole number, the normal distribution is not.
    z = max(0.0, abs(u - n * m / 2.0) - 0.5) / math.sqrt(variance)
    return math.erfc(z / math.sqrt(2.0))
