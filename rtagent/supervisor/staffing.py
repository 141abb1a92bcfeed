"""Which processes a run wants, and how each is started."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rtagent.config import Config
from rtagent.memory.control import DesiredState
from rtagent.memory.world import WorldHandles
from rtagent.processes.launch import ForkServer
from rtagent.processes.worker import Assignment, run_worker
from rtagent.supervisor.child import Starter
from rtagent.supervisor.children import Key

ENTRIES = {
    "environment": "rtagent.env.process:run",
    "inference": "rtagent.inference.process:run",
    "learner": "rtagent.learning.learner:run",
    "evaluation": "rtagent.evaluation.process:run",
    "recorder": "rtagent.telemetry.process:run",
}


def wanted(config: Config, desired: DesiredState, *, service: bool) -> Iterator[Key]:
    """The processes that should exist now, in the order of their start.

    Args:
        config: in force.
        desired: in force.
        service: whether there is an HTTP service.
    """
    if service:
        yield "service", 0
    yield "environment", 0
    yield from (("learner", index) for index in range(desired.learning.processes))
    yield from (("inference", index) for index in range(desired.processes))
    if config.learning.evaluation_every_s:
        yield "evaluation", 0
    if config.run.tensorboard:
        yield "recorder", 0


@dataclass(frozen=True)
class Staffing:
    """Makes what starts a process.

    Attributes:
        fork_server: forks it.
        handles: of the shared memory.
        service: body of the HTTP service's process. If None, no service.
        checkpoint_dir: where learners write.
        resume: checkpoint to start from.
        run_dir: where the records of this run are written.
    """

    fork_server: ForkServer
    handles: WorldHandles
    service: Any
    checkpoint_dir: Path
    resume: Path | None
    run_dir: Path

    def starter(self, role: str, index: int) -> Starter:
        """What starts the process of a role and an index."""
        spawn = self.fork_server.spawn
        if role == "service":
            return partial(spawn, self.service, self.handles, name=role)
        assignment = Assignment(
            role, index, ENTRIES[role], self.handles, self.checkpoint_dir, self.resume,
            self.run_dir,
        )
        return partial(spawn, run_worker, assignment, name=f"{role}-{index}")
