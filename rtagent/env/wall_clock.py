"""When ticks are due: pure arithmetic on nanoseconds.

Tick k is due at anchor + (k - anchor tick) / rate, for ever: lateness does not accumulate. A
process held up for a few ticks runs them at once with the default behaviour; held up for longer,
it moves the anchor and counts a slip, for the agent would learn nothing good from a burst of ticks
in which it cannot act.
"""

from __future__ import annotations

from typing import NamedTuple

from rtagent.clock import NANO


class Plan(NamedTuple):
    """How to run the next tick.

    Attributes:
        catch_up: ticks to run at once with the default behaviour before the agent acts again.
        slipped_ns: time by which the anchor was moved; 0 if it was not.
    """

    catch_up: int
    slipped_ns: int


class TickSchedule:
    """Due times of ticks.

    Args:
        rate_hz: ticks per second.
        anchor_ns: due time of tick `anchor_tick`.
        anchor_tick: number of the first tick.
        max_catch_up_ticks: most missed ticks that are caught up with; more are a slip.

    Attributes:
        slipped_ns: time by which slips have delayed the ticks of the run.
    """

    def __init__(
        self, rate_hz: float, anchor_ns: int, anchor_tick: int, max_catch_up_ticks: int
    ) -> None:
        self.anchor_ns = anchor_ns
        self.anchor_tick = anchor_tick
        self.slipped_ns = 0
        self._period_ns = NANO / rate_hz
        self._max_catch_up = max_catch_up_ticks

    def due_ns(self, tick: int) -> int:
        """Monotonic nanoseconds at which the tick is due."""
        return self.anchor_ns + round((tick - self.anchor_tick) * self._period_ns)

    def plan(self, tick: int, now_ns: int) -> Plan:
        """Decide, when the process wakes up for a tick, what to do about missed ticks.

        Args:
            tick: the next tick to run; after a slip it is due now.
            now_ns: the time, at or after its due time.
        """
        late = now_ns - self.due_ns(tick)
        missed = int(late // self._period_ns)
        if missed <= self._max_catch_up:
            return Plan(max(missed, 0), 0)
        self.anchor_ns += late
        self.slipped_ns += late
        return Plan(0, late)
