"""Events of the deadline controller's decisions: ends of horizons, and new batch sizes.

In mode `step` the batch size may change with every update, and a horizon may be a single update.
Events are for people, and many of one kind would displace the others. So there is at most one event
a second for new sizes, and one for each outcome of horizons, with the number of decisions left out.
All decisions with their inputs are in the ring of decisions (`memory/horizon.py`), which
`GET /v1/deadlines` shows.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

from rtagent.clock import Clock
from rtagent.memory.horizon import OUTCOMES, HorizonRecord

EVENT_EVERY_S = 1.0


class DecisionEvents:
    """Publishes the decisions in the ring as events.

    Args:
        record: holds the ring.
        clock: time.
        event: sends an event: event(kind, **details).
    """

    def __init__(self, record: HorizonRecord, clock: Clock, event: Callable[..., None]) -> None:
        self._record, self._clock, self._event = record, clock, event
        self._seen = 0
        self._sent_at: dict[str, float] = {}
        self._left_out: Counter[str] = Counter()

    def publish(self) -> None:
        """Send events for the decisions since the last call."""
        for decision in self._record.decisions(since=self._seen):
            self._seen = decision.number + 1
            details = decision.describe()
            why = details.pop("kind")
            if why in OUTCOMES:
                self._send(why, "horizon", outcome=why, **details)
            elif decision.before not in (0, decision.after):
                self._send("size", "batch_size", why=why, **details)

    def _send(self, what: str, kind: str, **details: Any) -> None:
        """Send an event, unless one for `what` was sent less than a second ago."""
        now = self._clock.now()
        if now - self._sent_at.get(what, -math.inf) < EVENT_EVERY_S:
            self._left_out[what] += 1
            return
        self._event(kind, **details, untold=self._left_out.pop(what, 0))
        self._sent_at[what] = now
