"""Clocks: one that is the machine's, one that moves when told to."""

from __future__ import annotations

import time

import pytest

from rtagent.clock import MonotonicClock, VirtualClock, whole_ticks
from rtagent.processes.wake_ahead import EVERY, FIRST_S, MARGIN_S, WakeAhead

PERIOD_S = 1 / 60


def test_a_tick_is_not_lost_to_a_rounding() -> None:
    for rate_hz in (50.0, 59.7275, 100.0, 200.0):
        lost = [ticks for ticks in range(3000) if whole_ticks(ticks / rate_hz, rate_hz) != ticks]
        assert not lost
    assert whole_ticks(0.299, 100.0) == 29


def test_virtual_clock_moves_only_when_told_to() -> None:
    clock = VirtualClock(5.0)
    assert clock.now() == clock.now() == 5.0
    clock.sleep_until(7.5)
    assert clock.now() == 7.5
    clock.sleep_until(6.0)
    assert clock.now() == 7.5
    clock.advance(0.25)
    assert clock.now() == 7.75
    assert VirtualClock().now() == 0.0


def test_monotonic_clock_is_the_kernels() -> None:
    before, now, after = time.monotonic(), MonotonicClock().now(), time.monotonic()
    assert before - 1e-6 <= now <= after + 1e-6


@pytest.mark.parametrize("spin", [False, True])
@pytest.mark.parametrize("wait_s", [0.003, FIRST_S / 2, 0.0, -1.0])
def test_never_returns_early(spin: bool, wait_s: float) -> None:
    clock = MonotonicClock(WakeAhead(PERIOD_S) if spin else None)
    began = clock.now()
    clock.sleep_until(began + wait_s)
    assert clock.now() - began >= wait_s
    assert clock.now() - began < 30.0


class Machine:
    """The kernel's clock and sleep, of which each is cut to a part; looking takes a microsecond."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, part: float = 1.0, late_s: float = 0.0
    ) -> None:
        self.time_ns = 0
        self._late_ns = round(late_s * 1e9)
        self.slept: list[float] = []
        self._part = part
        monkeypatch.setattr(time, "sleep", self._sleep)
        monkeypatch.setattr(time, "monotonic_ns", self._look)

    def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time_ns += round(seconds * self._part * 1e9) + self._late_ns

    def _look(self) -> int:
        self.time_ns += 1000
        return self.time_ns


def test_sleep_that_is_cut_short_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, part=0.25)
    clock = MonotonicClock()
    clock.sleep_until(0.004)
    assert clock.now() >= 0.004
    assert len(machine.slept) > 1


def test_only_the_last_part_is_spun(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    clock = MonotonicClock(WakeAhead(PERIOD_S))
    clock.sleep_until(0.004)
    assert sum(machine.slept) == pytest.approx(0.004 - FIRST_S, rel=0.01)
    assert 0.004 <= clock.now() < 0.004 + 10e-6


def test_the_part_that_is_spun_follows_the_lateness_of_sleeps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    late_s = 90e-6
    machine = Machine(monkeypatch, late_s=late_s)
    ahead = WakeAhead(PERIOD_S)
    clock = MonotonicClock(ahead)
    for tick in range(1, 4 * EVERY):
        clock.sleep_until(tick * PERIOD_S)
        assert clock.now() < tick * PERIOD_S + 20e-6
    assert ahead.seconds == pytest.approx(late_s + MARGIN_S, abs=5e-6)
    assert machine.slept[-1] == pytest.approx(PERIOD_S - ahead.seconds, rel=0.01)
    # What was spun is counted, but for the newest wait.
    assert ahead.awake_s == pytest.approx(
        EVERY * (FIRST_S - late_s) + (3 * EVERY - 2) * MARGIN_S, rel=0.2
    )


def test_a_wait_that_is_too_short_to_sleep_says_nothing_about_sleeps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine(monkeypatch)
    ahead = WakeAhead(PERIOD_S)
    clock = MonotonicClock(ahead)
    for tick in range(4 * EVERY):
        clock.sleep_until(tick * FIRST_S / 2)
    assert (machine.slept, ahead.seconds) == ([], FIRST_S)
