"""Whether returns rise or fall, by a statistical test.

The newer half of the last episodes is compared with the older half by the rank sum test of Mann and
Whitney ("On a Test of Whether one of Two Random Variables is Stochastically Larger than the Other",
Annals of Mathematical Statistics 18, 1947), two-sided, in its normal approximation with ties. Since
the test is repeated all the time while a run goes on, its level `MOST_CHANCE` is small.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from rtagent.telemetry.figures.learning import Trend

EPISODES = 200
"""Newest episodes that are compared."""
LEAST_EPISODES = 20
MOST_CHANCE = 0.001
"""Largest p value of a significant difference."""


def trend(returns: npt.NDArray[np.float64]) -> Trend:
    """How the newer half of the newest episodes compares with the older half.

    Args:
        returns: (n,) of finished episodes, oldest first; those that are not finite are left out.

    Returns:
        Without values for fewer than `LEAST_EPISODES`; steady where the difference is not
        significant, or where means and ranks say the opposite, as with one return far off.
    """
    finite = returns[np.isfinite(returns)][-EPISODES:]
    half = len(finite) // 2
    if 2 * half < LEAST_EPISODES:
        return Trend(None, None, None, None)
    older, newer = finite[len(finite) - 2 * half :][:half], finite[-half:]
    change, p_value = float(newer.mean() - older.mean()), rank_sum_p(older, newer)
    direction = "rising" if change > 0.0 else "falling"
    higher = float(np.sign(np.subtract.outer(newer, older)).sum())
    if p_value > MOST_CHANCE or change * higher <= 0.0:
        direction = "steady"
    return Trend(direction, change, 2 * half, p_value)


def rank_sum_p(one: npt.NDArray[np.float64], other: npt.NDArray[np.float64]) -> float:
    """The two-sided p value of the rank sum test, normal approximation, ties counted.

    Args:
        one: (n,) values.
        other: (m,) values.
    """
    n, m = len(one), len(other)
    both = np.concatenate([one, other])
    _, where, ties = np.unique(both, return_inverse=True, return_counts=True)
    # Equal values share the mean of their ranks.
    ranks = (np.cumsum(ties) - (ties - 1) / 2.0)[where]
    u = float(ranks[:n].sum()) - n * (n + 1) / 2.0
    total = n + m
    variance = n * m / 12.0 * (total + 1 - float((ties**3 - ties).sum()) / (total * (total - 1)))
    if variance <= 0.0:
        return 1.0
    # Half a step towards the mean: u is a whole number, a normal variable is not.
    z = max(0.0, abs(u - n * m / 2.0) - 0.5) / math.sqrt(variance)
    return math.erfc(z / math.sqrt(2.0))
