"""The duties of a step of the supervisor: an error in one costs neither the others nor the run.

A duty may fail over what other processes have written, or over a refusal of the system: memory,
descriptors, a file of `/proc`. Whatever it raises, the next step tries again a moment later. That
must not hide a mistake in the code, so the error becomes an event, with its traceback.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from rtagent.clock import Clock
from rtagent.logs.shortening import current_traceback, short_error
from rtagent.supervisor.status import Report

REPORT_EVERY_S = 30.0
"""Least time between two reports of a failure: a duty may fail ten times a second."""


class Duties:
    """Does duties, and reports those that fail."""

    def __init__(self, report: Report, clock: Clock) -> None:
        self._report = report
        self._clock = clock
        self._failures: dict[str, tuple[int, float]] = {}

    def do(self, name: str, duty: Callable[[], object]) -> bool:
        """Do a duty, which events call by `name`; whether it succeeded."""
        try:
            duty()
        except Exception:
            self._report_failure(name, short_error(current_traceback()))
            return False
        return True

    def _report_failure(self, name: str, error: str) -> None:
        """Report a failure of a duty, unless one was reported a short time ago."""
        now = self._clock.now()
        failures, reported_at = self._failures.get(name, (0, -math.inf))
        failures += 1
        if now - reported_at >= REPORT_EVERY_S:
            reported_at = now
            self._report.event(
                "internal_error", source="supervisor", duty=name, failures=failures, error=error
            )
        self._failures[name] = failures, reported_at
