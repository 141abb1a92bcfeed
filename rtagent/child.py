"""One supervised process: its state, its pipe, and when it is started, ended or given up.

States after supervisord's: starting -> running -> (backoff -> starting | failed), and
stopping -> stopped when it is told to leave.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from rtagent import launch
from rtagent.restart import RestartPolicy

TERM_AFTER_S = 2.0
KILL_AFTER_S = 5.0
ERROR_LINES = 30


class State(StrEnum):
    """Of a child process."""

    STARTING = "starting"
    RUNNING = "running"
    BACKOFF = "backoff"
    FAILED = "failed"
    STOPPING = "stopping"
    STOPPED = "stopped"


Starter = Callable[[Any], Any]
"""Spawns the process, given its end of the pipe."""


@dataclass
class Child:
    """One supervised process.

    Attributes:
        role: environment, inference, learner or service.
        index: number within the role.
        start_process: spawns it.
        state: see `State`.
        process: the process object of its present life.
        voice: the supervisor's end of its pipe.
        since: when the present state began, seconds.
        restarts: lives after the first.
        last_error: the traceback or reason of the last death.
        boot_error: whether it has never run, for a reason that no restart mends (`UserError`).
    """

    role: str
    index: int
    start_process: Starter
    state: State = State.STOPPED
    process: Any = None
    voice: Any = None
    since: float = 0.0
    restarts: int = 0
    last_error: str | None = None
    boot_error: bool = False
    _has_run: bool = False
    _start_at: float = 0.0
    _killed_for: str | None = None
    _said: str | None = None
    _policy: RestartPolicy = field(default_factory=RestartPolicy)

    @property
    def name(self) -> str:
        """For messages."""
        return f"{self.role} {self.index}" if self.role in ("inference", "learner") else self.role

    @property
    def pid(self) -> int | None:
        """Of the process, while there is one."""
        alive = self.process is not None and self.state not in (State.STOPPED, State.FAILED)
        return int(self.process.pid) if alive and self.state is not State.BACKOFF else None

    @property
    def alive(self) -> bool:
        """Whether a process of this child exists."""
        return self.state in (State.STARTING, State.RUNNING, State.STOPPING)

    def start(self, now: float) -> None:
        """Spawn the process."""
        self._killed_for = self._said = None
        self.boot_error = False
        self.voice, theirs = launch.pipe()
        self.process = self.start_process(theirs)
        theirs.close()
        self._enter(State.STARTING, now)

    def start_if_due(self, now: float) -> bool:
        """Spawn again when the backoff is over; whether it did."""
        if self.state is not State.BACKOFF or now < self._start_at:
            return False
        self.restarts += 1
        self.start(now)
        return True

    def mark_ready(self, now: float) -> None:
        """The process said that it works."""
        if self.state is State.STARTING:
            self._has_run = True
            self._enter(State.RUNNING, now)

    def stop(self, now: float) -> None:
        """Expect the process to leave; `enforce_stop` helps it."""
        if self.alive and self.state is not State.STOPPING:
            self._enter(State.STOPPING, now)
        elif self.state is State.BACKOFF:
            self._enter(State.STOPPED, now)

    def enforce_stop(self, now: float) -> None:
        """SIGTERM, then SIGKILL, for a process that should have left."""
        if self.state is State.STOPPING:
            if now - self.since > KILL_AFTER_S:
                self.signal(signal.SIGKILL)
            elif now - self.since > TERM_AFTER_S:
                self.signal(signal.SIGTERM)

    def kill(self, reason: str) -> None:
        """End a process that hangs; it is then restarted like any that died."""
        self._killed_for = reason
        self.signal(signal.SIGKILL)

    def signal(self, number: int) -> None:
        """Send a signal to the process, if it still exists."""
        if self.process is not None and self.process.exitcode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, number)

    def reap(self, now: float, jitter: float) -> None:
        """Account for the death of the process and decide what comes next."""
        code = self.process.exitcode
        self.process.join()
        # A process that has left may never be wanted again: it must not keep descriptors open.
        self.process.close()
        self.process = None
        self.voice.close()
        if self.state is State.STOPPING:
            self._enter(State.STOPPED, now)
            return
        died = f"killed by {_signal_name(-code)}" if code < 0 else f"left with code {code}"
        self.last_error = self._killed_for or self._said or died
        due = None if self.boot_error else self._policy.next_start(now, jitter)
        if due is None:
            self._enter(State.FAILED, now)
        else:
            self._start_at = due
            self._enter(State.BACKOFF, now)

    def note_error(self, text: str, *, boot: bool) -> None:
        """Remember what the process said when it died."""
        lines = text.strip().splitlines()
        if len(lines) > ERROR_LINES:
            lines = [lines[0], "  ...", *lines[-ERROR_LINES:]]
        self._said = "\n".join(lines)
        self.boot_error = boot and not self._has_run

    def describe(self) -> dict[str, Any]:
        """For `/v1/status`."""
        return {
            "name": self.name,
            "role": self.role,
            "index": self.index,
            "pid": self.pid,
            "state": str(self.state),
            "restarts": self.restarts,
            "last_error": self.last_error,
        }

    def _enter(self, state: State, now: float) -> None:
        self.state, self.since = state, now


def _signal_name(number: int) -> str:
    """SIGKILL and the like; most realtime signals have no name."""
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"
