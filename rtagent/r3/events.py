"""What the deadline controller decides, told as events: ends of horizons, and new batch sizes.

In mode `step` the batch size may change with every update, and a horizon may be as short as one.
Events are for people, and many of a kind would push out the others; so of new sizes, and of the
ends of each outcome, one a second is told at most, with the number of those left out. All of them,
with their inputs, stay in the ring of decisions (`memory/horizon.py`), which `GET /v1/deadlines`
shows.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

from rtagent.clock import Clock
from rtagent.memory.horizon import OUTCOMES, Decision, HorizonRecord

TOLD_EVERY_S = 1.0


class DecisionEvents:
    """Publishes the decisions in the ring as events.

    Args:
        record: holds it.
        clock: time.
        event: reports something worth remembering: event(kind, **details).
    """

    def __init__(self, record: HorizonRecord, clock: Clock, event: Callable[..., None]) -> None:
        self._record, self._clock, self._event = record, clock, event
        self._seen = 0
        self._told_at: dict[str, float] = {}
        self._untold: Counter[str] = Counter()

    def publish(self) -> None:
        """Tell what has been decided since the last call."""
        for decision in self._record.decisions(since=self._seen)[::-1]:
            self._seen = decision.number + 1
            self._tell(decision)

    def _tell(self, decision: Decision) -> None:
        details = decision.describe()
        why = details.pop("kind")
        if why in OUTCOMES:
            self._seldom(why, "horizon", outcome=why, **details)
        elif decision.before not in (0, decision.after):
            self._seldom("size", "batch_size", why=why, **details)

    def _seldom(self, what: str, kind: str, **details: Any) -> None:
        """Tell it, unless `what` was told of less than a second ago."""
        now = self._clock.now()
        if now - self._told_at.get(what, -math.inf) < TOLD_EVERY_S:
            self._untold[what] += 1
            return
        self._event(kind, **details, untold=self._untold.pop(what, 0))
        self._told_at[what] = now
