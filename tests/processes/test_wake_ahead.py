"""The time ahead: follows how late sleeps end, within a share of a core."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from rtagent.processes.wake_ahead import (
    BEHINDS,
    CPU_SHARE,
    EVERY,
    FIRST_S,
    MARGIN_S,
    QUANTILE,
    WINDOW,
    Forecast,
    WakeAhead,
    time_ahead,
)

PERIOD_S = 1 / 60
REHEARSAL_S = 60e-6


def transcription(late: np.ndarray, over: np.ndarray, budget_s: float) -> float:
    """The largest a with mean(max(0, a - late)) + mean(over) <= budget, by bisection."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        awake = sum(max(0.0, middle - each) for each in late) / len(late)
        low, high = (middle, high) if awake + over.mean() <= budget_s else (low, middle)
    return low


@pytest.mark.parametrize("seed", range(20))
def test_the_budget_is_used_and_not_exceeded(seed: int) -> None:
    rng = np.random.default_rng(seed)
    late = rng.lognormal(-8.5, rng.uniform(0.2, 1.5), rng.integers(1, 200))
    over = rng.uniform(0.0, 1e-4, len(late))
    ready = late + 1.0
    found = time_ahead(late, ready, over, 5e-4)
    assert found == pytest.approx(transcription(late, over, 5e-4), rel=1e-6, abs=1e-9)


def test_the_time_ahead_covers_nearly_all_wake_ups_and_is_no_longer() -> None:
    late = np.linspace(1e-5, 2e-4, 1000)
    found = time_ahead(late, late + REHEARSAL_S, np.zeros(1000), 1.0)
    assert found == pytest.approx(np.quantile(late, QUANTILE) + REHEARSAL_S + MARGIN_S, rel=0.01)


def test_late_events_use_up_the_budget() -> None:
    late = np.full(10, 3e-5)
    assert time_ahead(late, late, np.full(10, 1e-3), 5e-4) == pytest.approx(3e-5)


class Machine:
    """Sleeps end late as the test says; a process wakes ahead of one event in each period."""

    def __init__(self, late_s: Callable[[], float], period_s: float = PERIOD_S) -> None:
        self.late_s, self.period_s = late_s, period_s
        self.ahead = WakeAhead(period_s)
        self.event_late_s = 0.0
        self.in_time: list[bool] = []

    def run(self, events: int) -> float:
        """Share of a core spent awake ahead."""
        before, self.in_time = self.ahead.awake_s, []
        for _ in range(events):
            self.ahead.choose()
            late = self.late_s()
            ready = late + REHEARSAL_S
            spare = self.ahead.seconds + self.event_late_s
            # A process that wakes up after the event was not awake ahead of it.
            self.ahead.note(late, ready, max(0.0, spare - late))
            self.in_time.append(ready <= spare)
        self.ahead.choose()
        return (self.ahead.awake_s - before) / (events * self.period_s)


def quiet(rng: np.random.Generator) -> Callable[[], float]:
    return lambda: float(rng.normal(50e-6, 5e-6))


def slow(rng: np.random.Generator) -> Callable[[], float]:
    """p50 0.2 ms, p99 1.8 ms."""
    return lambda: float(rng.lognormal(np.log(200e-6), 0.944))


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(1)


def test_before_anything_is_measured() -> None:
    assert WakeAhead(PERIOD_S).seconds == FIRST_S
    assert WakeAhead(1e-3).seconds == pytest.approx(CPU_SHARE * 1e-3)


def test_a_machine_that_wakes_at_once_is_given_little(rng: np.random.Generator) -> None:
    machine = Machine(quiet(rng))
    machine.run(WINDOW)
    share = machine.run(2000)
    assert machine.ahead.seconds < FIRST_S / 2
    assert share < 0.01
    assert np.mean(machine.in_time) > 0.98


def test_a_machine_that_wakes_slowly_is_given_more_within_the_share(
    rng: np.random.Generator,
) -> None:
    machine = Machine(slow(rng))
    machine.run(WINDOW)
    share = machine.run(2000)
    assert machine.ahead.seconds > FIRST_S
    assert share == pytest.approx(CPU_SHARE, rel=0.15)
    # The constant of before covered fewer.
    before = np.mean([machine.late_s() + REHEARSAL_S <= FIRST_S for _ in range(5000)])
    assert np.mean(machine.in_time) > before + 0.1


@pytest.mark.parametrize("period_s", [1e-3, PERIOD_S, 1.0])
@pytest.mark.parametrize("of", [quiet, slow])
def test_the_share_is_kept_at_every_rate(
    rng: np.random.Generator, of: Callable[..., Callable[[], float]], period_s: float
) -> None:
    machine = Machine(of(rng), period_s)
    machine.run(WINDOW)
    assert machine.run(3000) <= 1.1 * CPU_SHARE


def test_it_follows_a_machine_that_changes(rng: np.random.Generator) -> None:
    machine = Machine(quiet(rng))
    machine.run(WINDOW)
    least = machine.ahead.seconds
    machine.late_s = slow(rng)
    machine.run(WINDOW + EVERY)
    assert machine.ahead.seconds > 2 * least
    machine.late_s = quiet(rng)
    machine.run(WINDOW + EVERY)
    assert machine.ahead.seconds == pytest.approx(least, rel=0.3)


def test_time_awake_for_late_events_counts_towards_the_share(rng: np.random.Generator) -> None:
    machine = Machine(quiet(rng))
    machine.event_late_s = 450e-6
    machine.run(WINDOW)
    assert machine.run(1000) <= 1.1 * CPU_SHARE
    assert machine.ahead.seconds < 150e-6


def test_an_event_is_expected_as_far_behind_its_due_time_as_the_early_ones_were() -> None:
    forecast = Forecast()
    behind = [2e-3, 3e-3, 2e-3, 9e-3] * BEHINDS
    assert [forecast.expected(7.0, each) for each in behind][-1] == pytest.approx(7.002)
    for _ in range(BEHINDS):
        forecast.expected(8.0, 5e-3)
    assert forecast.expected(9.0, 5e-3) == pytest.approx(9.005)
