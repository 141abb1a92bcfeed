"""What must be done once, in processes of their own, before the workers of a run can start.

The supervisor loads neither torch nor the environment; these children do, and end.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rtagent import launch
from rtagent.config import Config
from rtagent.errors import UserError
from rtagent.memory.blueprint import Blueprint
from rtagent.memory.world import World, WorldHandles
from rtagent.worker import start_life

POLL_S = 0.1


def find_shapes(
    config: Config, checkpoint_dir: Path, stopping: Callable[[], bool]
) -> tuple[Blueprint, Path | None] | None:
    """Build environment and network once, and check the checkpoint to resume from.

    Args:
        config: what to build.
        checkpoint_dir: where a checkpoint may be.
        stopping: asked again and again; ends the wait.

    Returns:
        The shapes of the run and the checkpoint; none if it was told to stop.

    Raises:
        UserError: something cannot be built or used as configured.
    """
    ours, theirs = launch.pipe()
    process = launch.spawn(_probe, config, checkpoint_dir, theirs, name="probe")
    theirs.close()
    try:
        while not ours.poll(POLL_S):
            if stopping():
                return None
            if not process.is_alive() and not ours.poll(0):
                raise UserError(
                    f"the environment or the network of env.id = {config.env.id!r} ended its "
                    f"process (exit code {process.exitcode}) while it was being built"
                )
        answer = ours.recv()
    finally:
        process.kill()
        process.join()
        ours.close()
    if answer[0] == "failed":
        raise UserError(answer[1])
    return answer[1], answer[2]


def publish_first_weights(handles: WorldHandles, resume: Path | None) -> None:
    """Publish weights to act with in a run where nobody learns.

    Args:
        handles: of the shared memory.
        resume: a checkpoint; none: random weights.
    """
    launch.spawn(_publish, handles, resume, name="weights").join()


def _probe(config: Config, checkpoint_dir: Path, voice: Any) -> None:
    from rtagent.probe import run_probe

    run_probe(config, checkpoint_dir, voice)


def _publish(handles: WorldHandles, resume: Path | None) -> None:
    from rtagent.learning.learner import publish_initial

    start_life("weights")
    publish_initial(World(handles), handles.config, resume)
