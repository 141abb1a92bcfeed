"""Each equation of R3 against a slow transcription of what the paper prints."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtagent.r3 import equations

RATIOS = st.floats(0.0, 3.0)
BYTES = st.floats(1.0, 1e12)


# ---- Eq. 1


def printed_batch_size(b: int, a_ratio: float, b_ratio: float, c: int, b_min: int) -> int:
    """Eq. 1 with its misprint mended, for factors that keep sizes whole."""
    size: float = b
    if a_ratio > b_ratio:
        size = b * c
    if a_ratio < b_ratio:
        size = b / c
    return int(min(max(size, b_min), 4 * b_min))


@given(st.sampled_from([1, 2, 4]), RATIOS, RATIOS, st.integers(1, 1000))
def test_batch_size_is_equation_1(times: int, a: float, b: float, b_min: int) -> None:
    current = times * b_min
    assert equations.next_batch_size(current, a, b, 2, b_min) == printed_batch_size(
        current, a, b, 2, b_min
    )


@given(st.integers(1, 10_000), RATIOS, RATIOS, st.floats(1.001, 16.0), st.integers(1, 1000))
def test_batch_size_stays_in_bounds_and_goes_the_right_way(
    current: int, a: float, b: float, factor: float, b_min: int
) -> None:
    size = equations.next_batch_size(current, a, b, factor, b_min)
    assert b_min <= size <= 4 * b_min
    inside = equations.clamp_batch_size(current, b_min)
    assert size >= inside if a > b else size <= inside if a < b else size == inside


@pytest.mark.parametrize("factor", [1.01, 1.1, 1.5, 3.0])
def test_every_factor_reaches_both_bounds(factor: float) -> None:
    size = 32
    for _ in range(200):
        size = equations.next_batch_size(size, 1.0, 0.0, factor, 32)
    assert size == 128
    for _ in range(200):
        size = equations.next_batch_size(size, 0.0, 1.0, factor, 32)
    assert size == 32


# ---- Eq. 2


@given(st.integers(1, 10**12), st.integers(1, 4096), st.integers(1, 10**9))
def test_memory_cap_is_the_largest_batch_that_fits(
    batch_bytes: int, b_base: int, base_bytes: int
) -> None:
    cap = equations.memory_cap(batch_bytes, b_base, base_bytes)
    assert equations.batch_memory(cap, b_base, base_bytes) <= batch_bytes * (1 + 1e-12)
    assert equations.batch_memory(cap + 1, b_base, base_bytes) > batch_bytes * (1 - 1e-12)


def test_memory_of_a_batch_that_was_never_measured_is_nothing() -> None:
    assert equations.batch_memory(64, 0, 0) == 0.0


# ---- Eq. 3


@given(st.integers(0, 5_000), st.integers(1, 8), st.integers(1, 100), st.integers(0, 40))
def test_replay_is_the_largest_that_fits(
    total: int, frames: int, state: int, metadata: int
) -> None:
    def printed(r: int) -> int:
        return (frames + r - 1) * state + r * metadata

    fitting = [r for r in range(1, total + 2) if printed(r) <= total]
    assert equations.replay_ticks(total, frames, state, metadata) == max(fitting, default=0)


# ---- Eq. 4


def printed_ratio(value: float, window: Sequence[float]) -> float:
    gamma = len(window)
    total = 0.0
    for j in range(1, gamma + 1):
        total += window[-j]
    return gamma * value / total


@given(st.floats(0.01, 1e6), st.lists(st.floats(0.01, 1e6), min_size=1, max_size=8))
def test_alpha_and_beta_are_equation_4_for_positive_values(
    value: float, window: list[float]
) -> None:
    assert equations.alpha(value, window) == pytest.approx(printed_ratio(value, window))
    assert equations.beta(value, window) == pytest.approx(printed_ratio(value, window))


@given(st.floats(-1e6, 1e6), st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=8))
def test_beta_of_other_returns_counts_the_distance_to_the_mean(
    value: float, window: list[float]
) -> None:
    mean = sum(window) / len(window)
    deviation = math.sqrt(sum((each - mean) ** 2 for each in window) / len(window))
    scale = max(abs(mean), deviation)
    if (value > 0 and min(window) > 0) or scale < 1e-6:
        return
    expected = 1 + (value - mean) / scale
    assert equations.beta(value, window) == pytest.approx(expected, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(
    ("value", "window", "expected"),
    [
        (1.0, [], 1.0),
        (0.0, [0.0, 0.0], 1.0),
        (5.0, [0.0, 0.0], 2.0),
        (-5.0, [0.0, 0.0], 0.0),
        (-20.0, [-10.0, -10.0], 0.0),
        (-10.0, [-20.0, -20.0], 1.5),
        (2.0, [-1.0, 1.0], 3.0),
        (0.0, [1.0, 1.0, 1.0, 1.0, 11.0], 0.25),
    ],
)
def test_beta_where_the_printed_ratio_means_nothing(
    value: float, window: list[float], expected: float
) -> None:
    assert equations.beta(value, window) == expected


def test_alpha_without_a_window_is_neutral() -> None:
    assert equations.alpha(3.0, []) == 1.0
    assert equations.alpha(3.0, [0.0]) == 1.0


# ---- Eqs. 5 and 6


@given(BYTES, BYTES, st.floats(0.0, 10.0), st.floats(-10.0, 10.0))
def test_reservations_are_equation_5(
    batch: float, replay: float, alpha: float, beta: float
) -> None:
    grown_batch = batch + batch * max(alpha - 1, 0) * (1 - min(beta, 1))
    grown_replay = replay + replay * min(alpha, 1) * max(1 - beta, 0)
    found = equations.reserve(batch, replay, alpha, beta)
    assert found == (pytest.approx(grown_batch), pytest.approx(grown_replay))
    assert found[0] >= batch
    assert found[1] >= replay


@given(
    st.lists(st.tuples(st.floats(0.1, 5.0), st.floats(-2.0, 3.0)), max_size=12), st.integers(1, 8)
)
def test_scales_are_the_factors_of_equation_5_each_fading_away(
    episodes: list[tuple[float, float]], window: int
) -> None:
    scales = (1.0, 1.0)
    for alpha, beta in episodes:
        scales = equations.scale_reservations(scales, alpha, beta, window)
    expected = [0.0, 0.0]
    for age, (alpha, beta) in enumerate(reversed(episodes)):
        fading = (1.0 - 1.0 / window) ** age if age else 1.0
        for which, factor in enumerate(equations.reserve(1.0, 1.0, alpha, beta)):
            expected[which] += fading * math.log(factor)
    assert [math.log(scale) for scale in scales] == pytest.approx(expected, abs=1e-9)


@given(st.floats(0.0, 1e12), BYTES, BYTES)
def test_fitting_uses_exactly_what_there_is_in_proportion(
    batch: float, replay: float, total: float
) -> None:
    fitted_batch, fitted_replay = equations.fit(batch, replay, total)
    assert fitted_batch + fitted_replay == pytest.approx(total, rel=1e-12)
    assert fitted_batch == pytest.approx(total * batch / (batch + replay))
    assert min(fitted_batch, fitted_replay) >= 0.0


# ---- deadlines


@given(st.floats(0.1, 1000.0), st.lists(st.integers(0, 1000), min_size=1, max_size=20))
def test_shares_of_the_deadline_add_up_to_it(deadline_s: float, samples: list[int]) -> None:
    budget = sum(samples)
    if budget:
        shares = [equations.episode_deadline(deadline_s, each, budget) for each in samples]
        assert sum(shares) == pytest.approx(deadline_s)


@given(st.lists(st.sampled_from([1.0, 2.0, 3.0]), max_size=20), st.integers(0, 20))
def test_good_episodes_are_counted_across_calls(returns: list[float], cut: int) -> None:
    expected = 0
    for value in returns:
        expected = expected + 1 if value >= 2.0 else 0
    first = equations.good_in_a_row(0, returns[:cut], 2.0)
    assert equations.good_in_a_row(first, returns[cut:], 2.0) == expected
    assert equations.good_in_a_row(first, returns[cut:], None) == 0
