"""What the supervisor tells the world: the state of the run, its processes, and what happened."""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Sequence
from typing import Any

from rtagent import __version__
from rtagent.child import Child, State
from rtagent.clock import Clock
from rtagent.config import Config
from rtagent.memory.cells import JsonCell

EVENTS_KEPT = 200
EVENTS_SHOWN = 20

_log = logging.getLogger("rtagent")


class Report:
    """Writes the status cell whenever something in it has changed.

    Args:
        run_id: name of the run.
        clock: time.
        url: of the HTTP service, if there is one.
    """

    def __init__(self, run_id: str, clock: Clock, url: str | None = None) -> None:
        self._run_id = run_id
        self._url = url
        self._clock = clock
        self._started = clock.now()
        self._events: deque[dict[str, Any]] = deque(maxlen=EVENTS_KEPT)
        self._written: dict[str, Any] = {}

    def event(self, kind: str, **details: Any) -> None:
        """Remember that something happened, and log it."""
        uptime_s = round(self._clock.now() - self._started, 3)
        self._events.append({"uptime_s": uptime_s, "kind": kind} | details)
        _log.info("%s: %s", kind, ", ".join(f"{key}={value}" for key, value in details.items()))

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
        shown = sorted(children, key=lambda child: (child.role, child.index))
        status = {
            "run_id": self._run_id,
            "version": __version__,
            "pid": os.getpid(),
            "url": self._url,
            "state": state,
            "roles": [child.describe() for child in shown if child.state is not State.STOPPED],
            "events": list(self._events)[-EVENTS_SHOWN:][::-1],
            "config": config.model_dump(mode="json"),
        }
        if status != self._written:
            cell.write(status)
            self._written = status


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
