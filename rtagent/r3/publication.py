"""Publishes the division of memory: in shared memory at every change, as events at large ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass

from rtagent.memory.horizon import HorizonRecord, Reservations

LARGE_CHANGE = 0.02
"""A limit is reported when it has changed by more than this share since the last event."""
TOLERANCE = 1.02
"""The budget counts as exceeded if more than this share of it is used."""


@dataclass(frozen=True)
class Changes:
    """Limits that the supervisor must put in force.

    Attributes:
        batch_bytes: reserved for the batches of each learner. If None, no limit.
        ticks_limit: ticks that the replay may keep.
        urgent: whether memory is short, and must be returned as fast as possible.
    """

    batch_bytes: int | None
    ticks_limit: int
    urgent: bool = False


class Publication:
    """Publishes the reservations.

    Args:
        record: in shared memory.
        event: sends an event: event(kind, **details).
        first: the limits at the start, which are not reported.
    """

    def __init__(self, record: HorizonRecord, event: Callable[..., None], first: Changes) -> None:
        self._record, self._event = record, event
        self._published = Reservations()
        self._reported = first
        self._exceeded = False

    def publish(self, reservations: Reservations) -> None:
        """Write the reservations to shared memory, if they have changed."""
        if reservations != self._published:
            self._record.reserve(reservations)
            self._published = reservations

    def report(self, limits: Changes, least_ticks: int) -> None:
        """Send an event if the limits have changed much, or if the budget is exceeded.

        Args:
            limits: in force.
            least_ticks: the smallest replay, which cannot return any more memory.
        """
        shown, reported = self._published, self._reported
        ticks = _differ(limits.ticks_limit, reported.ticks_limit)
        if ticks or _differ(limits.batch_bytes, reported.batch_bytes):
            self._event("memory_division", **asdict(shown))
            self._reported = limits
        budget, used = shown.budget_bytes, shown.used_bytes
        exceeded = 0 <= TOLERANCE * budget < used and limits.ticks_limit == least_ticks
        if exceeded and not self._exceeded:
            self._event("memory_budget_exceeded", **asdict(shown))
        self._exceeded = exceeded


def _differ(new: int | None, old: int | None) -> bool:
    if new is None or old is None:
        return new != old
    return abs(new - old) > LARGE_CHANGE * old
