"""The trend of returns: its test, and that chance alone is seldom called a trend."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from rtagent.telemetry.figures.learning import Trend
from rtagent.telemetry.trend import EPISODES, LEAST_EPISODES, MOST_CHANCE, rank_sum_p, trend


def slow_u(one: np.ndarray, other: np.ndarray) -> float:
    """Pairs in which the first is larger; equal ones count half."""
    return sum((a > b) + 0.5 * (a == b) for a, b in itertools.product(one, other))


def exact_p(one: np.ndarray, other: np.ndarray) -> float:
    """Over all ways to divide the values into two samples of these sizes."""
    values, n = np.concatenate([one, other]), len(one)
    middle = n * len(other) / 2
    found = abs(slow_u(one, other) - middle)
    spread = [
        abs(slow_u(values[list(chosen)], np.delete(values, list(chosen))) - middle)
        for chosen in itertools.combinations(range(len(values)), n)
    ]
    return float(np.mean([each >= found - 1e-9 for each in spread]))


@pytest.mark.parametrize("seed", range(6))
def test_the_p_value_is_nearly_the_exact_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    one, other = rng.integers(0, 8, 6) + seed % 3, rng.integers(0, 8, 6)
    assert rank_sum_p(one, other) == pytest.approx(exact_p(one, other), abs=0.05)


def test_the_p_value_is_corrected_for_continuity() -> None:
    """As `wilcox.test(1:3, 4:6, exact = FALSE)` of R says."""
    assert rank_sum_p(np.arange(1, 4), np.arange(4, 7)) == pytest.approx(0.08086, abs=1e-5)


def test_the_p_value_is_corrected_for_ties() -> None:
    """As `wilcox.test(c(1, 1, 2, 2, 3), c(2, 3, 3, 4, 4), exact = FALSE)` of R says."""
    p_value = rank_sum_p(np.array([1, 1, 2, 2, 3]), np.array([2, 3, 3, 4, 4]))
    assert p_value == pytest.approx(0.0524116, abs=1e-7)


def test_equal_values_are_no_trend() -> None:
    assert rank_sum_p(np.ones(10), np.ones(10)) == 1.0
    assert rank_sum_p(np.arange(10), np.arange(10)) == 1.0
    assert trend(np.ones(60)).direction == "steady"


def test_too_few_episodes_have_no_trend() -> None:
    assert trend(np.arange(LEAST_EPISODES - 1.0)) == Trend(None, None, None, None)
    assert trend(np.arange(float(LEAST_EPISODES))).direction == "rising"


@pytest.mark.parametrize(
    ("scale", "direction"), [(1.0, "rising"), (-1.0, "falling"), (1e-6, "rising")]
)
def test_a_clear_change_is_found(scale: float, direction: str) -> None:
    """Of 101 episodes the oldest is left out."""
    rng = np.random.default_rng(0)
    returns = scale * (rng.normal(0.0, 1.0, 101) + np.arange(101) * 0.05)
    found = trend(returns)
    assert (found.direction, found.episodes) == (direction, 100)
    assert found.change == pytest.approx(returns[51:].mean() - returns[1:51].mean())


@pytest.mark.parametrize(("sign", "outlier"), [(1.0, 1000.0), (-1.0, 1000.0), (1.0, 255.0)])
def test_one_outlier_does_not_make_a_rise_of_a_fall(sign: float, outlier: float) -> None:
    """The means say one thing, or nothing, and the ranks, which are tested, the opposite."""
    older, newer = np.full(50, 10.0), np.full(50, 5.0)
    newer[-1] = outlier
    found = trend(sign * np.concatenate([older, newer]))
    assert found.p_value < MOST_CHANCE
    assert found.direction == "steady"


def test_returns_without_a_trend_are_seldom_called_one() -> None:
    """As a page looks: after every episode, for a thousand episodes."""
    rng = np.random.default_rng(1)
    told = 0
    for _ in range(10):
        returns = np.exp(rng.normal(0.0, 1.0, 1000))
        told += sum(
            trend(returns[:count]).direction != "steady"
            for count in range(LEAST_EPISODES, 1000, 5)
        )
    assert told <= 10 * 196 * 4 * MOST_CHANCE


def test_only_the_newest_finite_returns_count() -> None:
    old = np.full(500, 1e6)
    newest = np.tile([1.0, 2.0], EPISODES // 2)
    with_gaps = np.insert(np.concatenate([old, newest]), 600, [np.nan, np.inf])
    found = trend(with_gaps)
    assert (found.episodes, found.change, found.direction) == (EPISODES, 0.0, "steady")
