"""One supervised process: its state, its pipe, and when it is started, ended or given up.

The states are named after supervisord's, except `failed`, a long backoff: after several deaths in
a row the process is still started again, every half minute, and shown as failed until it runs. A
process that cannot work as configured (`UserError`) stays failed. `SUCCESSORS` says which state may
follow which and why; `Child._enter` alone writes the state, and refuses every other change.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from rtagent.logs.shortening import short_error
from rtagent.processes.launch import signal_name
from rtagent.processes.pipe import Pipe, open_pipe
from rtagent.processes.restart_policy import RestartPolicy

TERM_AFTER_S = 2.0
KILL_AFTER_S = 5.0


class State(StrEnum):
    """State of a child process."""

    STARTING = "starting"
    RUNNING = "running"
    BACKOFF = "backoff"
    FAILED = "failed"
    STOPPING = "stopping"
    STOPPED = "stopped"


SUCCESSORS: dict[State, dict[State, str]] = {
    State.STOPPED: {
        State.STARTING: "it is wanted, and its process has been spawned",
        State.BACKOFF: "it is wanted, and the system refuses to spawn its process",
    },
    State.STARTING: {
        State.RUNNING: "the process says that it works",
        State.BACKOFF: "the process has died before it worked",
        State.FAILED: "it has died too often, or cannot work as configured",
        State.STOPPING: "it is no longer wanted",
    },
    State.RUNNING: {
        State.BACKOFF: "the process has died",
        State.FAILED: "it has died too often, a short time after its start each time",
        State.STOPPING: "it is no longer wanted",
    },
    State.BACKOFF: {
        State.STARTING: "the pause is over, and a process has been spawned",
        State.BACKOFF: "the pause is over, and the system refuses to spawn a process",
        State.FAILED: "the system has refused too often",
        State.STOPPED: "it is no longer wanted; there is no process to wait for",
    },
    State.FAILED: {
        State.STARTING: "the pause is over, and a process has been spawned",
        State.FAILED: "the pause is over, and the system refuses to spawn a process",
        State.STOPPED: "it is no longer wanted, or is to start afresh with other settings",
    },
    State.STOPPING: {
        State.STOPPED: "the process has left, or was killed",
    },
}
"""Which state may follow which, and what has happened then."""

Starter = Callable[[Pipe], Any]
"""Spawns the process, given its end of the pipe."""


@dataclass
class Child:
    """One supervised process.

    Attributes:
        process: the process object of its present life.
        pipe: the supervisor's end of the pipe to it.
        sent_nonsense: whether it has sent a message in this life that makes no sense.
        since: when the present state began, seconds.
        restarts: how often the process was replaced, in this run.
        restarted: whether it was, since it was last wanted.
        last_error: the traceback or reason of the last death.
        boot_error: whether it has never run, for a reason that no restart mends (`UserError`).
        reported_error: the error that the process has reported in this life.
        busy: stepping or resetting, while the environment takes long for that.
        start_at: when a dead process is started again, seconds; infinite if no start mends it.
    """

    role: str
    index: int
    start_process: Starter
    state: State = State.STOPPED
    process: Any = None
    pipe: Any = None
    sent_nonsense: bool = False
    since: float = 0.0
    restarts: int = 0
    restarted: bool = False
    last_error: str | None = None
    boot_error: bool = False
    reported_error: str | None = None
    busy: str | None = None
    start_at: float = 0.0
    _has_run: bool = False
    _killed_for: str | None = None
    _policy: RestartPolicy = field(default_factory=RestartPolicy)

    @property
    def name(self) -> str:
        """Its name in messages."""
        return f"{self.role} {self.index}" if self.role in ("inference", "learner") else self.role

    @property
    def last_line(self) -> str:
        """The reason of the last death: the last line of a traceback; empty if there is none."""
        return "".join((self.last_error or "").splitlines()[-1:])

    @property
    def pid(self) -> int | None:
        """Pid of the process, while there is one and the fork server has answered."""
        pid: int | None = self.process.pid if self.alive else None
        return pid

    @property
    def failing(self) -> bool:
        """Whether it counts as failed: it has failed, or is being started again after that."""
        again = self.state is State.STARTING and self._policy.failing
        return again or self.state is State.FAILED

    @property
    def alive(self) -> bool:
        """Whether a process of this child exists."""
        return self.state in (State.STARTING, State.RUNNING, State.STOPPING)

    def start(self, now: float, jitter: float = 1.0) -> None:
        """Spawn the process. If the system refuses that, it counts as a life that ended at once."""
        self._killed_for = self.reported_error = None
        self.boot_error = self.sent_nonsense = False
        try:
            self.process, self.pipe = spawned(self.start_process)
        except OSError as error:
            self.last_error = f"no process: {error.strerror}"
            self._await_next_life(now, 0.0, jitter)
        else:
            self._enter(State.STARTING, now)

    def start_if_due(self, now: float, jitter: float = 1.0) -> bool:
        """Spawn again when the backoff is over; whether it tried."""
        if self.state not in (State.BACKOFF, State.FAILED) or now < self.start_at:
            return False
        self.restarts += 1
        self.restarted = True
        self.start(now, jitter)
        return True

    def mark_ready(self, now: float) -> bool:
        """Take in that the process works; whether that is news."""
        if self.state is not State.STARTING:
            return False
        self._has_run = True
        self._enter(State.RUNNING, now)
        return True

    def stop(self, now: float) -> None:
        """Expect the process to leave, if there is one; `enforce_stop` makes it leave."""
        if self.alive and self.state is not State.STOPPING:
            self._enter(State.STOPPING, now)
        elif self.state in (State.BACKOFF, State.FAILED):
            self._enter(State.STOPPED, now)

    def postpone(self, seconds: float) -> None:
        """Give a process that should leave more time, since it was paused for so long."""
        if self.state is State.STOPPING:
            self.since += seconds

    def enforce_stop(self, now: float) -> None:
        """SIGTERM, then SIGKILL, for a process that should have left."""
        if self.state is State.STOPPING:
            if now - self.since > KILL_AFTER_S:
                self.end()
            elif now - self.since > TERM_AFTER_S:
                self.process.terminate()

    def kill(self, reason: str) -> None:
        """End a process that hangs; it is then restarted like one that died."""
        self._killed_for = reason
        self.end()

    def end(self) -> None:
        """End the process, and what a world has started: a simulator would keep its port."""
        self.process.kill(whole_tree=self.role in ("environment", "evaluation"))

    def reap(self, now: float, jitter: float) -> None:
        """Account for the death of the process and decide what comes next."""
        code, failure = self.process.exitcode, self.process.failure
        self.process.join()
        # If the process is not wanted again, nothing else closes its descriptors.
        self.process.close()
        self.process = None
        self.pipe.close()
        if self.state is State.STOPPING:
            self._enter(State.STOPPED, now)
            return
        died = f"killed by {signal_name(-code)}" if code < 0 else f"left with code {code}"
        self.last_error = self._killed_for or self.reported_error or failure or died
        ran_s = now - self.since if self.state is State.RUNNING else 0.0
        self._await_next_life(now, ran_s, jitter)

    def _await_next_life(self, now: float, ran_s: float, jitter: float) -> None:
        due = self._policy.next_start(now, ran_s, jitter)
        self.start_at = math.inf if self.boot_error else due
        failed = self.boot_error or self._policy.failing
        self._enter(State.FAILED if failed else State.BACKOFF, now)

    def note_error(self, text: str, *, boot: bool) -> None:
        """Remember the error that the process reported when it died."""
        self.reported_error = short_error(text)
        self.boot_error = boot and not self._has_run

    def describe(self) -> dict[str, Any]:
        """Its entry in `/v1/status`."""
        return {
            "name": self.name, "role": self.role, "index": self.index, "pid": self.pid,
            "state": str(State.FAILED if self.failing else self.state),
            "busy": self.busy if self.state is State.RUNNING else None,
            "restarts": self.restarts, "last_error": self.last_error,
        }

    def _enter(self, state: State, now: float) -> None:
        """Write the state. No other function writes it.

        Raises:
            RuntimeError: `SUCCESSORS` does not know this change.
        """
        if state not in SUCCESSORS[self.state]:
            raise RuntimeError(f"{self.name} cannot become {state}: it is {self.state}")
        self.state, self.since = state, now


def spawned(start: Starter) -> tuple[Any, Pipe]:
    """A new process, and our end of the pipe to it.

    Raises:
        OSError: the system refuses it.
    """
    ours, theirs = open_pipe()
    try:
        return start(theirs), ours
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
