"""Time, passed in as an object, so that every schedule also runs on a virtual clock.

Only the monotonic clock is used: a change of the wall clock must have no effect on acting.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rtagent.processes.wake_ahead import WakeAhead

NANO = 1_000_000_000
"""Nanoseconds of a second."""


def whole_ticks(seconds: float, rate_hz: float) -> int:
    """Ticks that fit into so many seconds; one that is missing only by a rounding counts."""
    return int(seconds * rate_hz * (1.0 + 1e-12))


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
        ahead: decides how long before the end of a wait the sleep ends; the rest is spun. Meant for
            the environment process, which runs at realtime priority. If None, nothing is spun, and
            waits end as late as sleeps do.
    """

    def __init__(self, ahead: WakeAhead | None = None) -> None:
        self.ahead = ahead
        self._newest: tuple[float, float, float] | None = None

    def now(self) -> float:
        return time.monotonic_ns() * 1e-9

    def sleep_until(self, when: float) -> None:
        if self.ahead is None:
            self._sleep_until(when)
            return
        # The last wake-up is noted before the next wait: right after it, its tick was due.
        if self._newest is not None:
            self.ahead.note(*self._newest)
            self._newest = None
        self.ahead.choose()
        wake = when - self.ahead.seconds
        slept = self._sleep_until(wake)
        end = woke = self.now()
        while end < when:
            end = self.now()
        if slept:
            self._newest = (woke - wake, woke - wake, end - woke)

    def _sleep_until(self, when: float) -> bool:
        """Sleep without precision; False if there was no time to sleep."""
        slept = False
        while (rest := when - self.now()) > 0:
            time.sleep(rest)
            slept = True
        return slept


def suspended_s() -> float:
    """Seconds for which this machine was suspended since its start; CLOCK_MONOTONIC stands then."""
    boot, awake = (time.clock_gettime(each) for each in (time.CLOCK_BOOTTIME, time.CLOCK_MONOTONIC))
    # Rounded, because the two clocks are read one after the other.
    return round(boot - awake, 2)


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
