"""Memory is measured in the background: nobody waits, and it takes little of the time."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator

import pytest

from rtagent.clock import VirtualClock
from rtagent.memory.meter import LONGEST_REST_S, SHARE, Measured, MemoryMeter
from tests.forked import eventually

PATIENCE_S = 60.0


class Slow:
    """Measures when the test lets it."""

    def __init__(self, clock: VirtualClock, cost_s: float = 0.0) -> None:
        self.clock, self.cost_s = clock, cost_s
        self.go = threading.Semaphore(0)
        self.asked: list[list[int]] = []

    def __call__(self, pids: Iterable[int]) -> int:
        self.asked.append(list(pids))
        self.go.acquire()
        self.clock.advance(self.cost_s)
        return len(self.asked[-1]) * 1000


def answer(meter: MemoryMeter, pids: Iterable[int] = (9,), everybody: bool = True) -> Measured:
    """The measurement under way, when it is there."""
    assert eventually(lambda: not meter._answers.empty())
    found = meter(pids, everybody)
    assert found is not None
    return found


def test_nobody_waits_for_a_measurement_that_hangs() -> None:
    slow = Slow(VirtualClock())
    meter = MemoryMeter(slow, slow.clock)
    began = time.monotonic()
    assert [meter(range(5), True) for _ in range(1000)] == [None] * 1000
    assert time.monotonic() - began < PATIENCE_S
    assert eventually(lambda: slow.asked == [[0, 1, 2, 3, 4]])
    slow.go.release()
    assert answer(meter) == (5000, True)
    slow.go.release(2)
    meter.close()


@pytest.mark.parametrize("cost_s", [0.002, 0.02, 3.0])
def test_it_rests_in_proportion_to_what_it_costs(cost_s: float) -> None:
    slow = Slow(VirtualClock(), cost_s)
    meter = MemoryMeter(slow, slow.clock)
    slow.go.release(10)
    assert meter([9], True) is None
    assert answer(meter) == (1000, True)
    rest_s = min(cost_s / SHARE, LONGEST_REST_S)
    slow.clock.advance(0.99 * rest_s)
    assert meter([9], True) is None
    assert len(slow.asked) == 1
    slow.clock.advance(0.02 * rest_s)
    assert meter([9], True) is None
    assert eventually(lambda: len(slow.asked) == 2)
    meter.close()


@pytest.fixture
def resting() -> Iterator[MemoryMeter]:
    """One that has just measured process 9, and rests; it measures at once when asked."""
    slow = Slow(VirtualClock(), 1.0)
    slow.go.release(10)
    meter = MemoryMeter(slow, slow.clock)
    assert meter([9], True) is None
    assert answer(meter) == (1000, True)
    assert meter([9], True) is None
    assert not meter._under_way
    yield meter
    meter.close()


def test_other_processes_are_measured_at_once_when_all_of_them_are_there(
    resting: MemoryMeter,
) -> None:
    # Those that are on their way would be measured in vain...
    assert resting([9, 10], False) is None
    assert not resting._under_way
    # ...and once they are there, nobody goes by those that were.
    assert resting([9, 10], True) is None
    assert answer(resting, [10, 9]) == (2000, True)
    assert resting([10, 9], True) is None
    assert not resting._under_way


@pytest.mark.parametrize("there", [(False, True), (True, False)])
def test_what_was_measured_while_not_all_were_there_is_measured_again_at_once(
    there: tuple[bool, bool],
) -> None:
    """A measurement takes a while: who is there at its end may not have been at its beginning."""
    slow = Slow(VirtualClock(), 1.0)
    slow.go.release(10)
    meter = MemoryMeter(slow, slow.clock)
    at_first, in_the_end = there
    assert meter([9, 10], at_first) is None
    assert answer(meter, [9, 10], in_the_end) == (2000, False)
    assert meter([9, 10], True) is None
    assert answer(meter, [9, 10]) == (2000, True)
    meter.close()


@pytest.mark.process
def test_it_measures_this_process() -> None:
    meter = MemoryMeter()
    meter([os.getpid()], True)
    assert answer(meter, [os.getpid()]).size > 1 << 20
    meter.close()


@pytest.mark.parametrize("error", [ValueError("not a number"), MemoryError()])
def test_a_measurement_that_fails_is_none(error: Exception) -> None:
    def fail(pids: Iterable[int]) -> int:
        raise error

    meter = MemoryMeter(fail, VirtualClock())
    assert meter([1], True) is None
    assert eventually(lambda: not meter._answers.empty())
    assert meter([1], True) is None
    assert not meter._under_way
