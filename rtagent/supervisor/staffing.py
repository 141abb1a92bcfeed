"""Which processes a run wants, and how each is started."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
    "converter": "rtagent.inference.engines.process:run",
}
GATEWAY = "rtagent.cluster.gateway:run"
"""Runs as the learner's process where the learner itself is in a cluster."""


def entry(role: str, config: Config) -> str:
    """The function that the processes of a role run, as `package.module:callable`."""
    elsewhere = role == "learner" and config.learning.where == "cluster"
    return GATEWAY if elsewhere else ENTRIES[role]


def wanted(desired: DesiredState, *, service: bool) -> Iterator[Key]:
    """The processes that should exist now, in the order of their start."""
    config = desired.config
    if service:
        yield "service", 0
    yield "environment", 0
    yield from (("learner", index) for index in range(desired.learning.processes))
    yield from (("inference", index) for index in range(desired.processes))
    if config.policy.engine != "torch":
        yield "converter", 0
    if config.learning.evaluation_every_s and config.policy.learns:
        yield "evaluation", 0
    if config.run.tensorboard or config.run.wandb or config.run.mlflow:
        yield "recorder", 0


def starter_of(
    fork_server: ForkServer, handles: WorldHandles, service: Any, checkpoint_dir: Path,
    resume: Path | None, run_dir: Path,
) -> Callable[[str, int], Starter]:
    """Gives, for a role and an index, the function that starts the process.

    Args:
        service: body of the HTTP service's process, if there is one.
        checkpoint_dir: where learners write.
        resume: checkpoint to start from.
        run_dir: where the records of this run are written.
    """

    def starter(role: str, index: int) -> Starter:
        if role == "service":
            return partial(fork_server.spawn, service, handles)
        assignment = Assignment(
            role, index, entry(role, handles.config), handles, checkpoint_dir, resume, run_dir
        )
        return partial(fork_server.spawn, run_worker, assignment)

    return starter
