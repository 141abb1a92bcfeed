"""Time, passed in as an object, so that every schedule also runs on a virtual clock.

Only the monotonic clock is used: a change of the wall clock must have no effect on acting.
"""

from __future__ import annotations

import time
from typing import Protocol

SPIN_S = 200e-6
"""The last part of a precise wait, spent spinning: a sleep wakes up to 100 microseconds late."""


class Clock(Protocol):
    """A source of monotonic time that can wait."""

    def now(self) -> float:
        """Seconds since an arbitrary fixed instant."""
        ...

    def sleep_until(self, when: float) -> None:
        """Return at or after `when` (seconds on this clock); at once if it is past."""
        ...


class MonotonicClock:
    """The machine's monotonic clock.

    Args:
        spin: whether `sleep_until` spins for the last `SPIN_S` seconds. Only the environment
            process, which has a core's attention, should.
    """

    def __init__(self, *, spin: bool = False) -> None:
        self._spin_s = SPIN_S if spin else 0.0

    def now(self) -> float:
        return time.monotonic_ns() * 1e-9

    def sleep_until(self, when: float) -> None:
        rest = when - self.now() - self._spin_s
        while rest > 0:
            time.sleep(rest)
            rest = when - self.now() - self._spin_s
        while self._spin_s and self.now() < when:
            pass


class VirtualClock:
    """A clock that moves only when it is told to: for tests and simulations."""

    def __init__(self, start: float = 0.0) -> None:
        self._now = start

    def now(self) -> float:
        return self._now

    def sleep_until(self, when: float) -> None:
        self._now = max(self._now, when)

    def advance(self, seconds: float) -> None:
        """Move time forward by `seconds`."""
        self._now += seconds
