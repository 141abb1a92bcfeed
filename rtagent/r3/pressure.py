"""Notices that memory is short: a batch did not fit, or the machine or a control group is full."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from rtagent.memory.process_metrics import ProcessMetrics
from rtagent.memory.usage import Level

Shortage = tuple[str, dict[str, Any]]
SHRINK_EVERY_S = 0.5
PUNCHING_S = 2.0
"""While memory is still being given back, the next halving waits so long."""
CALM_S = 10.0
"""Nothing is taken back for so long after something was given up."""


class Pressure:
    """Watches the memory of the machine, of the control groups, and of the learners.

    Args:
        metrics: where learners count batches that did not fit.
        levels: how full machine and control groups are.
    """

    def __init__(self, metrics: ProcessMetrics, levels: Callable[[], Sequence[Level]]) -> None:
        self._metrics, self._levels = metrics, levels
        self._failures = 0
        self._noticed_at = -math.inf
        self._calm = True

    def notice(self, now: float, *, settled: bool) -> Shortage | None:
        """Look once; what is to be answered by a halving, if anything: the event and its details.

        Args:
            now: seconds.
            settled: whether the last halving has been carried out.
        """
        levels = self._levels()
        self._calm = all(level.calm for level in levels)
        shortage = self._batch_refused() or self._full(now, levels, settled)
        if shortage is not None:
            self._noticed_at = now
        return shortage

    def over(self, now: float) -> bool:
        """Whether memory may be taken back."""
        return self._calm and now - self._noticed_at >= CALM_S

    def _batch_refused(self) -> Shortage | None:
        failures = sum(each.out_of_memory for each in self._metrics.learners)
        if failures <= self._failures:
            return None
        self._failures = failures
        return "out_of_memory", {"batches_that_did_not_fit": failures}

    def _full(self, now: float, levels: Sequence[Level], settled: bool) -> Shortage | None:
        short = [level for level in levels if level.short]
        if not short or now - self._noticed_at < (SHRINK_EVERY_S if settled else PUNCHING_S):
            return None
        level = min(short, key=lambda level: level.available)
        return "memory_pressure", {
            "where": level.name, "available_bytes": level.available,
            "floor_bytes": level.floor, "stalled_percent": level.stalled_percent,
        }
