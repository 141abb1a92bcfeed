"""What the supervisor publishes: the state of the run, its processes, and the events.

Why it is correct. Only the supervisor's thread publishes. Events go to the disk and to the log
through queues that never make it wait (`telemetry/event_log.py`, `logs/log_lines.py`); whether
they reach the disk is one attribute, which the event log's thread sets and the supervisor's thread
reads. The newest events also stand in the status document, so they are seen when the disk is full.
The wall clock is read once, at the start: from there the times of events follow the monotonic clock
and the time that the machine slept, even if the wall clock is set.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from rtagent import __version__
from rtagent.clock import Clock, suspended_s
from rtagent.config import Config
from rtagent.logs.event_levels import level_of
from rtagent.logs.log_format import event_text
from rtagent.logs.log_lines import LogLines
from rtagent.logs.shortening import EVENT_BYTES, short_details, short_text
from rtagent.memory.double_buffer import JsonDoubleBuffer, TooLong
from rtagent.supervisor.child import Child, State
from rtagent.telemetry.event_log import KEYS, MOST_BYTES, EventLog

EVENTS_SHOWN = 50
SHORTER = (2000, 500, 100)
"""Limits of an error and of an event, bytes: tried in turn where the whole status does not fit."""
CLOSE_LIMIT_S = 1.0

_log = logging.getLogger("rtagent")


class Report:
    """Writes the status document whenever something in it has changed, and keeps the events.

    Args:
        url: of the HTTP service, if there is one.
        events: file to keep the events in. If None, they are not kept.
        events_bytes: most that are kept.
        time_of_day: read once.
        suspended: seconds that the machine has slept; the monotonic clock stands still meanwhile.
    """

    def __init__(
        self, run_id: str, clock: Clock, url: str | None = None, events: Path | None = None,
        events_bytes: int = MOST_BYTES,
        time_of_day: Callable[[], datetime] = lambda: datetime.now(UTC),
        suspended: Callable[[], float] = suspended_s,
    ) -> None:
        self._run_id = run_id
        self._url = url
        self._clock = clock
        self._started = clock.now()
        self._suspended = suspended
        self._began = time_of_day() - timedelta(seconds=suspended())
        self._count = 0
        self._events: deque[dict[str, Any]] = deque(maxlen=EVENTS_SHOWN)
        self._written: dict[str, Any] = {}
        self._lost: str | None = None
        self._known_lost: str | None = None
        self._lines = LogLines(_log_event)
        self._kept = None if events is None else EventLog(events, self._note_loss, events_bytes)

    def event(self, kind: str, source: str | None = None, **details: Any) -> None:
        """Keep and log an event; details that are too long are shortened.

        Args:
            kind: of event.
            source: the process, or the section of the settings.
            details: plain values.
        """
        own = {name: value for name, value in details.items() if name not in KEYS}
        details = short_details(own, EVENT_BYTES)
        uptime_s = round(self._clock.now() - self._started, 3)
        self._count += 1
        at = self._began + timedelta(seconds=uptime_s + self._suspended())
        event = {
            "id": self._count, "at": at.isoformat(timespec="milliseconds"), "uptime_s": uptime_s,
            "kind": kind, "source": source, **details,
        }
        self._events.appendleft(event)
        if self._kept is not None:
            self._kept.put(event)
        self._lines.put(event)

    def write(
        self, buffer: JsonDoubleBuffer, children: Sequence[Child], config: Config, state: str
    ) -> None:
        """Bring the status document up to date. Only the supervisor."""
        # Looked at once: the log's thread may change it meanwhile.
        if (lost := self._lost) != self._known_lost:
            self._known_lost = lost
            kind = "events_kept_again" if lost is None else "events_not_kept"
            self.event(kind, source="supervisor", reason=lost)
        shown = sorted(children, key=lambda child: (child.role, child.index))
        status = {
            "run_id": self._run_id,
            "version": __version__,
            "pid": os.getpid(),
            "url": self._url,
            "state": state,
            "shortened": False,
            "started_s": self._started,
            "roles": [child.describe() for child in shown if child.state is not State.STOPPED],
            "events": list(self._events),
            "config": config.model_dump(mode="json"),
        }
        if status != self._written:
            _write(buffer, status)
            self._written = status

    def close(self) -> None:
        """Write the events that wait, as far as the disk takes them in `CLOSE_LIMIT_S`."""
        if self._kept is not None:
            self._kept.close(CLOSE_LIMIT_S)
        self._lines.close(CLOSE_LIMIT_S)

    def _note_loss(self, reason: str | None) -> None:
        """Note why events do not reach the disk; None once they do. From the log's thread."""
        self._lost = reason


def run_state(children: Sequence[Child], ticks: int, *, stopping: bool) -> str:
    """starting, running, degraded (something is being restarted), failed or stopping."""
    if stopping:
        return "stopping"
    if any(child.failing for child in children):
        return "failed"
    if not ticks or any(c.state is State.STARTING and not c.restarted for c in children):
        return "starting"
    settled = (State.RUNNING, State.STOPPED, State.STOPPING)
    return "running" if all(child.state in settled for child in children) else "degraded"


def _log_event(event: dict[str, Any], dropped: int) -> None:
    """Log an event; the formatters of `logs/log_format.py` find it whole in the record."""
    extra = {"event": event, "dropped": dropped}
    _log.log(level_of(event["kind"]), "%s", event_text(event), extra=extra)


def _write(buffer: JsonDoubleBuffer, status: dict[str, Any]) -> None:
    """Write a status, shortened if it does not fit: there may be hundreds of long errors."""
    for most in (None, *SHORTER):
        try:
            buffer.write(status if most is None else _shortened(status, most))
        except TooLong:
            continue
        return
    buffer.write({**status, "roles": [], "events": [], "shortened": True})


def _shortened(status: dict[str, Any], most: int) -> dict[str, Any]:
    roles = [
        {**each, "last_error": each["last_error"] and short_text(each["last_error"], most)}
        for each in status["roles"]
    ]
    events = []
    for event in status["events"]:
        details = {name: value for name, value in event.items() if name not in KEYS}
        always = {name: event[name] for name in KEYS}
        events.append(always | short_details(details, most))
    return {**status, "roles": roles, "events": events, "shortened": True}
