"""Injected latency: each distribution has the mean and the quantiles that it promises."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from rtagent.config import InferenceConfig
from rtagent.inference.latency import SMALLEST_FRACTION, draw

MEAN_MS = 82.0
MEAN_S = MEAN_MS / 1e3
DRAWS = 20_000


def sample(distribution: Any, spread: float, seed: int = 1, mean_ms: float = MEAN_MS) -> np.ndarray:
    inference = InferenceConfig(
        injected_latency_ms=mean_ms, injected_latency_distribution=distribution,
        injected_latency_spread=spread,
    )
    rng = np.random.default_rng(seed)
    return np.array([draw(inference, rng) for _ in range(DRAWS)])


def test_constant() -> None:
    assert set(sample("constant", 0.7)) == {MEAN_S}


@pytest.mark.parametrize("distribution", ["constant", "gauss", "lognormal", "outliers"])
def test_no_latency_stays_none(distribution: str) -> None:
    assert set(sample(distribution, 0.5, mean_ms=0.0)) == {0.0}


@pytest.mark.parametrize("distribution", ["gauss", "lognormal"])
def test_no_spread_is_constant(distribution: str) -> None:
    assert set(sample(distribution, 0.0)) == {MEAN_S}


@pytest.mark.parametrize("spread", [0.02, 0.1, 0.3])
def test_gauss(spread: float) -> None:
    times = sample("gauss", spread)
    assert times.mean() == pytest.approx(MEAN_S, rel=0.01)
    assert times.std() == pytest.approx(spread * MEAN_S, rel=0.03)
    expected = NormalDist(MEAN_S, spread * MEAN_S)
    for fraction in (0.05, 0.5, 0.95):
        found = np.quantile(times, fraction)
        assert found == pytest.approx(expected.inv_cdf(fraction), abs=0.04 * spread * MEAN_S)


def test_gauss_is_never_negative() -> None:
    times = sample("gauss", 2.0)
    assert times.min() == SMALLEST_FRACTION * MEAN_S
    below = NormalDist(1.0, 2.0).cdf(SMALLEST_FRACTION)
    assert (times == times.min()).mean() == pytest.approx(below, abs=0.02)


@pytest.mark.parametrize("spread", [0.1, 0.5])
def test_lognormal(spread: float) -> None:
    times = sample("lognormal", spread)
    assert times.mean() == pytest.approx(MEAN_S, rel=0.02)
    logarithms = np.log(times / MEAN_S)
    assert logarithms.mean() == pytest.approx(-spread**2 / 2, abs=0.03 * spread)
    assert logarithms.std() == pytest.approx(spread, rel=0.03)
    expected = NormalDist(-(spread**2) / 2, spread)
    for fraction in (0.05, 0.5, 0.95):
        found = np.quantile(logarithms, fraction)
        assert found == pytest.approx(expected.inv_cdf(fraction), abs=0.04 * spread)


@pytest.mark.parametrize(
    ("spread", "share", "factor"),
    [(0.0, 0.01, 10.0), (4.0, 0.01, 4.0), (1.0, 0.01, 1.0), (0.02, 0.02, 10.0)],
)
def test_outliers(spread: float, share: float, factor: float) -> None:
    times = sample("outliers", spread)
    assert set(times) == {MEAN_S, MEAN_S * factor}
    if factor > 1.0:
        # Three standard deviations of a count of 200 or more.
        assert (times > MEAN_S).mean() == pytest.approx(share, rel=0.22)


@pytest.mark.parametrize("distribution", ["gauss", "lognormal", "outliers"])
def test_seed_decides(distribution: str) -> None:
    first, again, other = (sample(distribution, 0.3, seed) for seed in (5, 5, 6))
    assert (first == again).all()
    assert (first != other).any()
