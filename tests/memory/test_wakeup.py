"""The doorbell: every ring is heard, and nobody waits for ever."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rtagent.clock import MonotonicClock, VirtualClock
from rtagent.memory import wakeup
from rtagent.memory.wakeup import LOOK_S, Doorbell
from tests.forked import Forked, eventually

SLEEPERS = 4
RINGS = 3000
OFFSET = 8


@pytest.fixture
def memory(shared: Callable[[int], memoryview]) -> memoryview:
    return shared(4096)


@pytest.fixture
def words(memory: memoryview) -> np.ndarray:
    return np.frombuffer(memory, np.int64)


@pytest.mark.parametrize(
    ("holds", "limit_s"), [(True, 60.0), (True, 0.0), (False, 0.03), (False, 0.0), (False, -1.0)]
)
def test_a_wait_lasts_until_the_condition_holds_or_the_time_is_up(
    memory: memoryview, holds: bool, limit_s: float
) -> None:
    began = time.monotonic()
    assert Doorbell(memory, OFFSET).wait_for(lambda: holds, MonotonicClock(), limit_s) is holds
    assert (0.0 if holds else limit_s) <= time.monotonic() - began < 30.0


def test_without_the_call_of_the_kernel_a_sleeper_looks_now_and_then(
    memory: memoryview, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakeup, "_SYS_FUTEX", -1)
    bell, clock, looks = Doorbell(memory, OFFSET), VirtualClock(), []

    def condition() -> bool:
        looks.append(clock.now())
        return clock.now() >= 9.5 * LOOK_S

    bell.ring()
    assert not bell.wait_for(condition, clock, 4.5 * LOOK_S)
    assert clock.now() == 4.5 * LOOK_S
    assert bell.wait_for(condition, clock, 60.0)
    assert len(looks) <= 12


def test_ring_between_check_and_sleep_is_not_lost(memory: memoryview) -> None:
    """The ring comes after the condition was seen not to hold: the sleep must end at once."""
    bell = Doorbell(memory, OFFSET)
    looks = 0

    def condition() -> bool:
        nonlocal looks
        looks += 1
        if looks == 1:
            bell.ring()
            return False
        return True

    began = time.monotonic()
    assert bell.wait_for(condition, MonotonicClock(), 60.0)
    assert time.monotonic() - began < 30.0
    assert looks == 2


def test_ring_without_the_condition_does_not_end_the_wait(memory: memoryview) -> None:
    bell = Doorbell(memory, OFFSET)
    began = time.monotonic()

    def condition() -> bool:
        bell.ring()
        return time.monotonic() - began > 0.02

    assert bell.wait_for(condition, MonotonicClock(), 10.0)
    assert time.monotonic() - began > 0.02


def test_count_wraps_around(memory: memoryview, words: np.ndarray) -> None:
    bell = Doorbell(memory, OFFSET)
    words[1] = 2**32 - 1
    bell.ring()
    assert words[1] == 0
    bell.ring()
    assert words[1] == 1


def test_wakes_a_thread(memory: memoryview, words: np.ndarray) -> None:
    """The sleep must let other threads of the process run."""
    bell = Doorbell(memory, OFFSET)
    heard = threading.Event()

    def wait() -> None:
        if bell.wait_for(lambda: bool(words[4]), MonotonicClock(), 60.0):
            heard.set()

    thread = threading.Thread(target=wait)
    thread.start()
    words[4] = 1
    bell.ring()
    assert heard.wait(30.0)
    thread.join()


@pytest.mark.process
def test_ping_pong_loses_no_ring(memory: memoryview, words: np.ndarray, forked: Forked) -> None:
    """Two processes wait for each other in turn: one lost wake-up would cost its whole limit."""
    there, back = Doorbell(memory, 8), Doorbell(memory, 16)
    clock = MonotonicClock()
    limit_s = 300.0

    def answer() -> None:
        for number in range(1, RINGS + 1):
            assert there.wait_for(lambda number=number: words[4] >= number, clock, limit_s)
            words[5] = number
            back.ring()

    pid = forked.start(answer)
    began = time.monotonic()
    for number in range(1, RINGS + 1):
        words[4] = number
        there.ring()
        assert back.wait_for(lambda number=number: words[5] >= number, clock, limit_s)
    assert time.monotonic() - began < limit_s
    assert forked.wait(pid) == 0


@pytest.mark.process
def test_wakes_several_processes(memory: memoryview, words: np.ndarray, forked: Forked) -> None:
    bell = Doorbell(memory, OFFSET)

    def wait(index: int) -> None:
        words[10 + index] = 1
        assert bell.wait_for(lambda: bool(words[4]), MonotonicClock(), 60.0)

    pids = [forked.start(lambda index=index: wait(index)) for index in range(SLEEPERS)]
    assert eventually(lambda: words[10 : 10 + SLEEPERS].all())
    words[4] = 1
    bell.ring()
    began = time.monotonic()
    assert [forked.wait(pid) for pid in pids] == [0] * SLEEPERS
    assert time.monotonic() - began < 30.0


def test_the_kernel_is_told_how_long(memory: memoryview) -> None:
    """Woken by a ring of something else, it sleeps for the rest, and no longer."""
    clock, bell, slept = VirtualClock(10.0), Doorbell(memory, OFFSET), []

    def sleep(*arguments: Any) -> None:
        limit = arguments[4]._obj
        slept.append(limit.seconds + limit.nanoseconds * 1e-9)
        clock.advance(min(slept[-1], 1.0))

    bell._syscall = sleep
    assert not bell.wait_for(lambda: False, clock, 1.25)
    assert slept == pytest.approx([1.25, 0.25])
