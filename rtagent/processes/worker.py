"""The base of every worker process: its life from the fork to its last message.

Why it is correct. A worker dies with the fork server (`PR_SET_PDEATHSIG`), which dies with the
supervisor. Both ignore SIGINT and SIGHUP, which are for the supervisor alone. A worker takes
SIGTERM as a request to leave its loop. Its heartbeat is stamped by the loop itself, never by a
helper thread: a loop that hangs stops beating. Its messages go through a pipe of its own. An event
that finds the pipe full is counted and dropped; only the first and the last message of a life wait
for the supervisor, and not for long. It reads the last messages of a dead worker before it looks at
the exit code.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Generic

from rtagent.clock import NANO, Clock, MonotonicClock
from rtagent.config import Config
from rtagent.errors import UserError
from rtagent.logs.shortening import EVENT_BYTES, current_traceback, short_details, short_error
from rtagent.memory.blueprint import Blueprint
from rtagent.memory.control import DesiredState
from rtagent.memory.process_metrics import Own
from rtagent.memory.world import World, WorldHandles
from rtagent.processes.pipe import Pipe
from rtagent.processes.scheduling import (
    enter_idle,
    name_process,
    sharpen_timers,
    spare_or_sacrifice,
)
from rtagent.processes.wake_ahead import WakeAhead

EXIT_FAILED = 1
EXIT_USER_ERROR = 2
LAST_NEEDED = 500
OUT_OF_MEMORY = {
    "service": -400, "environment": -250, "inference": 0, "recorder": 250, "learner": 500,
    "evaluation": 750, "converter": 600,
}
"""Scores of the kernel, by role: when memory is short, the highest ends first, learners early.

Supervisor and fork server come last. A score above the inherited one takes no permission.
"""
LAST_WORDS_S = 2.0
"""How long a dying process waits for room in the pipe to say why."""


@dataclass(frozen=True)
class Assignment:
    """Which worker to be. Picklable.

    Attributes:
        entry: `package.module:function`, called with the `WorkerContext`.
        handles: of the shared memory.
        checkpoint_dir: where learners write.
        resume: checkpoint to start from.
        run_dir: where the records of this run are written.
    """

    role: str
    index: int
    entry: str
    handles: WorldHandles
    checkpoint_dir: Path
    resume: Path | None = None
    run_dir: Path = Path()


class Leaving(Exception):
    """Ends the work of a process that has been told to leave."""


@dataclass
class WorkerContext(Generic[Own]):
    """What the function of a worker may use.

    Attributes:
        assignment: which worker it is.
        world: the shared memory.
        record: the worker's own record in the metrics.
        clock: monotonic time.
    """

    assignment: Assignment
    world: World
    record: Own
    clock: Clock
    pipe: Pipe
    terminated: bool = field(default=False, init=False)
    dropped_events: int = field(default=0, init=False)
    """Events dropped since the last one that was sent."""

    @property
    def config(self) -> Config:
        """The configuration the run started with."""
        return self.world.config

    @property
    def blueprint(self) -> Blueprint:
        """The shapes of the run."""
        return self.world.blueprint

    @property
    def index(self) -> int:
        """Number of this worker within its role."""
        return self.assignment.index

    @property
    def checkpoint_dir(self) -> Path:
        """Where checkpoints are written."""
        return self.assignment.checkpoint_dir

    @property
    def resume(self) -> Path | None:
        """The checkpoint to start from."""
        return self.assignment.resume

    @property
    def run_dir(self) -> Path:
        """Where the records of this run are written."""
        return self.assignment.run_dir

    @property
    def desired(self) -> DesiredState:
        """The desired state in force."""
        return self.world.control.desired

    @property
    def stopping(self) -> bool:
        """Whether the loop should end: SIGTERM, or the supervisor's order."""
        return self.terminated or self.desired.stop

    def beat(self) -> None:
        """Stamp the heartbeat. Called in every cycle of the work loop."""
        self.record.heartbeat_ns = int(self.clock.now() * NANO)

    def ready(self) -> None:
        """Tell the supervisor that the work loop is about to start."""
        self.beat()
        self.record.ready = 1
        self.pipe.send(("ready", {}), LAST_WORDS_S)

    def set_idle_priority(self) -> None:
        """Run from now on only when no other process needs the core."""
        enter_idle()

    def event(self, kind: str, **details: Any) -> None:
        """Report an event to the supervisor. Never waits and never raises."""
        if self.dropped_events:
            details["events_dropped_before"] = self.dropped_events
        self.dropped_events += 1
        with contextlib.suppress(OSError):
            if self.pipe.send(("event", {**short_details(details, EVENT_BYTES), "kind": kind})):
                self.dropped_events = 0


def start_life(name: str, out_of_memory: int = LAST_NEEDED) -> None:
    """What every child of the fork server does first.

    Args:
        name: for top and ps.
        out_of_memory: how soon the kernel may end it when memory is short, see `scheduling.py`.
    """
    spare_or_sacrifice(out_of_memory)
    name_process(f"rt-{name}")


def run_worker(assignment: Assignment, pipe: Pipe) -> None:
    """The whole life of a worker process; the fork server flushes what it has printed."""
    start_life(f"{assignment.role} {assignment.index}", OUT_OF_MEMORY[assignment.role])
    sharpen_timers()
    try:
        world = World(assignment.handles)
        record = world.metrics.record(assignment.role, assignment.index)
        record.pid = os.getpid()
        record.ready = 0
        paced = assignment.role == "environment"
        clock = MonotonicClock(WakeAhead(world.blueprint.tick_seconds) if paced else None)
        context = WorkerContext(assignment, world, record, clock, pipe)
        signal.signal(signal.SIGTERM, lambda *_: setattr(context, "terminated", True))
        context.beat()
        _limit_threads(assignment.role)
        resolve_name(assignment.entry)(context)
    except BaseException as error:
        sys.exit(say_last(pipe, error))


def _limit_threads(role: str) -> None:
    """Let torch use one thread: two would compete with those of other workers."""
    if role not in ("environment", "recorder"):
        import torch

        torch.set_num_threads(1)


def say_last(pipe: Pipe, error: BaseException) -> int:
    """Report why this process ends, in a line if no restart mends it; its exit code."""
    boot = isinstance(error, UserError)
    told = short_error(str(error) if boot else current_traceback())
    with contextlib.suppress(OSError):
        pipe.send(("failed", {"error": told, "boot": boot}), LAST_WORDS_S)
        pipe.close()
    return EXIT_USER_ERROR if boot else EXIT_FAILED
