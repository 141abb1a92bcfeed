"""What the supervisor tells the world: the state of the run, its processes, and what happened.

Why it is correct. Only the supervisor's thread tells. Events leave for the disk through a queue
that never makes it wait (`event_log.py`); whether they arrive there is one attribute, which the
log's thread sets and the supervisor's thread reads. The newest events also stand in the status
cell, so they are seen when the disk is full. The wall clock is read once, at the start: the times
of events follow the monotonic clock from there, whatever is done to the other.
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
from rtagent.child import Child, State
from rtagent.clock import Clock
from rtagent.config import Config
from rtagent.event_log import EventLog
from rtagent.memory.cells import JsonCell

EVENTS_SHOWN = 50
CLOSE_LIMIT_S = 1.0

_log = logging.getLogger("rtagent")


def wall_clock() -> datetime:
    """The time of day, for people."""
    return datetime.now(UTC)


class Report:
    """Writes the status cell whenever something in it has changed, and keeps the events.

    Args:
        run_id: name of the run.
        clock: time.
        url: of the HTTP service, if there is one.
        events: file to keep the events in; none: they are not kept.
        time_of_day: read once.
    """

    def __init__(
        self,
        run_id: str,
        clock: Clock,
        url: str | None = None,
        events: Path | None = None,
        time_of_day: Callable[[], datetime] = wall_clock,
    ) -> None:
        self._run_id = run_id
        self._url = url
        self._clock = clock
        self._started = clock.now()
        self._began = time_of_day()
        self._count = 0
        self._events: deque[dict[str, Any]] = deque(maxlen=EVENTS_SHOWN)
        self._written: dict[str, Any] = {}
        self._lost: str | None = None
        self._known_lost: str | None = None
        self._kept = None if events is None else EventLog(events, self._note_loss)

    def event(self, kind: str, source: str | None = None, **details: Any) -> None:
        """Remember that something happened, and log it.

        Args:
            kind: of event.
            source: the process, or the section of the settings.
            details: plain values.
        """
        uptime_s = round(self._clock.now() - self._started, 3)
        self._count += 1
        event = {
            "id": self._count,
            "at": (self._began + timedelta(seconds=uptime_s)).isoformat(timespec="milliseconds"),
            "uptime_s": uptime_s,
            "kind": kind,
            "source": source,
            **details,
        }
        self._events.appendleft(event)
        if self._kept is not None:
            self._kept.put(event)
        said = ([] if source is None else [f"source={source}"]) + [
            f"{key}={value}" for key, value in details.items()
        ]
        _log.info("%s: %s", kind, ", ".join(said))

    def write(
        self, cell: JsonCell, children: Sequence[Child], config: Config, state: str
    ) -> None:
        """Bring the status cell up to date. Only the supervisor.

        Args:
            cell: the status cell.
            children: every process.
            config: in force.
            state: of the run.
        """
        if self._lost != self._known_lost:
            self._known_lost = self._lost
            kind = "events_kept_again" if self._lost is None else "events_not_kept"
            self.event(kind, source="supervisor", reason=self._known_lost)
        shown = sorted(children, key=lambda child: (child.role, child.index))
        status = {
            "run_id": self._run_id,
            "version": __version__,
            "pid": os.getpid(),
            "url": self._url,
            "state": state,
            "started_s": self._started,
            "roles": [child.describe() for child in shown if child.state is not State.STOPPED],
            "events": list(self._events),
            "config": config.model_dump(mode="json"),
        }
        if status != self._written:
            cell.write(status)
            self._written = status

    def close(self) -> None:
        """Let the events reach the disk, if it takes them soon."""
        if self._kept is not None:
            self._kept.close(CLOSE_LIMIT_S)

    def _note_loss(self, reason: str | None) -> None:
        """Why events do not reach the disk; None: they do again. From the log's thread."""
        self._lost = reason


def run_state(children: Sequence[Child], ticks: int, *, stopping: bool) -> str:
    """starting, running, degraded (something is being restarted), failed or stopping.

    Args:
        children: every process.
        ticks: how many have happened.
        stopping: whether the end has been ordered.
    """
    if stopping:
        return "stopping"
    if any(child.state is State.FAILED for child in children):
        return "failed"
    if not ticks or any(c.state is State.STARTING and not c.restarts for c in children):
        return "starting"
    settled = (State.RUNNING, State.STOPPED, State.STOPPING)
    return "running" if all(child.state in settled for child in children) else "degraded"
