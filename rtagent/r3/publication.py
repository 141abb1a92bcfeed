"""Shows how memory is divided: in shared memory at every change, as events when it is news."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass

from rtagent.memory.horizon import HorizonRecord, Reservations

WORTH_TELLING = 0.02
"""A reservation that has changed by less since the last event is no event."""
TOLERANCE = 1.02
"""The budget counts as exceeded beyond this share of it."""


@dataclass(frozen=True)
class Changes:
    """What the supervisor must put in force.

    Attributes:
        batch_bytes: reserved for the batches of each learner. If None, no limit.
        ticks_limit: ticks that the replay may keep.
        urgent: memory is short: give it back as fast as possible.
    """

    batch_bytes: int | None
    ticks_limit: int
    urgent: bool = False


class Publication:
    """Publishes the reservations.

    Args:
        record: in shared memory.
        event: reports something worth remembering: event(kind, **details).
        first: in force at the start; no news.
    """

    def __init__(self, record: HorizonRecord, event: Callable[..., None], first: Changes) -> None:
        self._record, self._event = record, event
        self._published = Reservations()
        self._told = first
        self._exceeded = False

    def publish(self, reservations: Reservations) -> None:
        """Bring the reservations in shared memory up to date."""
        if reservations != self._published:
            self._record.reserve(reservations)
            self._published = reservations

    def tell(self, order: Changes, least_ticks: int) -> None:
        """Report a division that differs from the last one told, and a budget exceeded.

        Args:
            order: in force.
            least_ticks: of the replay, below which nothing can be given back.
        """
        shown, told = self._published, self._told
        ticks = _differ(order.ticks_limit, told.ticks_limit)
        if ticks or _differ(order.batch_bytes, told.batch_bytes):
            self._event("memory_division", **asdict(shown))
            self._told = order
        budget, used = shown.budget_bytes, shown.used_bytes
        exceeded = 0 <= TOLERANCE * budget < used and order.ticks_limit == least_ticks
        if exceeded and not self._exceeded:
            self._event("memory_budget_exceeded", **asdict(shown))
        self._exceeded = exceeded


def _differ(new: int | None, old: int | None) -> bool:
    if new is None or old is None:
        return new != old
    return abs(new - old) > WORTH_TELLING * old
