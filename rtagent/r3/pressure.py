"""Notices a shortage of memory: a batch did not fit, or machine or control group are full."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from rtagent.memory.process_metrics import ProcessMetrics
from rtagent.memory.usage import Level

Shortage = tuple[str, dict[str, Any]]
HALVE_EVERY_S = 0.5
UNSETTLED_S = 2.0
"""The time between two halvings while the rings still return memory."""
CALM_S = 10.0
"""The time after a shortage in which no reservation grows."""


class Pressure:
    """Watches the memory of the machine, of the control groups, and of the learners.

    Args:
        metrics: in which learners count batches that did not fit.
        levels: how full machine and control groups are.
    """

    def __init__(self, metrics: ProcessMetrics, levels: Callable[[], Sequence[Level]]) -> None:
        self._metrics, self._levels = metrics, levels
        self._failures = 0
        self._noticed_at = -math.inf
        self._calm = True

    def notice(self, now: float, *, settled: bool) -> Shortage | None:
        """Check for a shortage that calls for a halving.

        Args:
            now: seconds.
            settled: whether the rings have returned the memory of the last halving.

        Returns:
            The kind of the event, and its details; None if there is no shortage.
        """
        levels = self._levels()
        self._calm = all(level.calm for level in levels)
        shortage = self._batch_refused() or self._full(now, levels, settled)
        if shortage is not None:
            self._noticed_at = now
        return shortage

    def over(self, now: float) -> bool:
        """Whether reservations may grow again."""
        return self._calm and now - self._noticed_at >= CALM_S

    def _batch_refused(self) -> Shortage | None:
        failures = sum(each.out_of_memory for each in self._metrics.learners)
        if failures <= self._failures:
            return None
        self._failures = failures
        return "out_of_memory", {"batches_that_did_not_fit": failures}

    def _full(self, now: float, levels: Sequence[Level], settled: bool) -> Shortage | None:
        short = [level for level in levels if level.short]
        if not short or now - self._noticed_at < (HALVE_EVERY_S if settled else UNSETTLED_S):
            return None
        level = min(short, key=lambda level: level.available)
        return "memory_pressure", {
            "where": level.name, "available_bytes": level.available,
            "floor_bytes": level.floor, "stalled_percent": level.stalled_percent,
        }
