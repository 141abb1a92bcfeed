"""Work that must be done once before the workers of a run can start, in short-lived processes.

The supervisor loads neither torch nor the environment; these processes do, and end.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import multiprocess
from multiprocess.connection import Connection

from rtagent.config import Config
from rtagent.errors import UserError
from rtagent.logs.shortening import current_traceback
from rtagent.memory.blueprint import Blueprint
from rtagent.memory.world import World, WorldHandles
from rtagent.processes.launch import ForkServer, Process
from rtagent.processes.worker import start_life
from rtagent.supervisor.children import KILL_LIMIT_S

POLL_S = 0.1
LIMIT_S = 900.0
"""How long a step of a child may take: a policy may be downloaded in it."""


@dataclass(frozen=True)
class Found:
    """What the probe found; `events` are kinds and details to report."""

    blueprint: Blueprint
    resume: Path | None
    events: Sequence[tuple[str, dict[str, Any]]] = ()


def find_shapes(
    fork_server: ForkServer, config: Config, checkpoint_dir: Path, run_dir: Path,
    stopping: Callable[[], bool],
) -> Found | None:
    """Build environment and network once, check the checkpoints, and write the run's record.

    Args:
        checkpoint_dir: where a checkpoint may be.
        run_dir: where the record of the run is written.
        stopping: called again and again; ends the wait once it is true.

    Returns:
        What was found; None if the run is to stop.

    Raises:
        UserError: something cannot be built or used as configured.
    """
    env_id = config.env.id
    answer = _ask(fork_server, stopping, "probe", (
        f"the environment or the network of env.id = {env_id!r} ended its process "
        "(exit code {code}) while it was being built"
    ), _probe, config, checkpoint_dir, run_dir)
    return None if answer is None else Found(*answer[1:])


def publish_first_weights(
    fork_server: ForkServer, handles: WorldHandles, resume: Path | None,
    stopping: Callable[[], bool],
) -> None:
    """Publish weights to act with in a run without learners: of a checkpoint, or random ones.

    Args:
        resume: the checkpoint, if there is one.
        stopping: called again and again; ends the wait once it is true.

    Raises:
        UserError: they cannot be published.
    """
    ended = "the process that publishes the first weights ended (exit code {code})"
    _ask(fork_server, stopping, "weights", ended, _publish, handles, resume)


def _ask(
    fork_server: ForkServer, stopping: Callable[[], bool], name: str, ended: str,
    body: Callable[..., None], *args: Any,
) -> Any:
    """The tuple that a child answers through a pipe, its last argument; None if `stopping`.

    The child may send ("doing", what) before a step; an error names the newest.
    `ended` is the error if the child ends without an answer; `{code}` in it is the exit code.

    Raises:
        UserError: the child answers with an error, ends without an answer, does not come back, or
            cannot be started.
    """
    ours, theirs = multiprocess.Pipe()
    try:
        process = fork_server.spawn(body, *args, theirs, name=name)
    except OSError as error:
        ours.close()
        raise UserError(f"no process can be started: {error.strerror}") from None
    finally:
        theirs.close()
    said: Any = "doing", f"the process {name}"
    try:
        while said is not None and said[0] == "doing":
            said = _hear(ours, process, fork_server, stopping, said[1])
    except EOFError:
        process.join(POLL_S)
        raise UserError(process.failure or ended.format(code=process.exitcode)) from None
    finally:
        process.kill()
        process.join(KILL_LIMIT_S)
        process.close()
        ours.close()
    if said is not None and said[0] == "failed":
        raise UserError(said[1])
    return said


def _hear(
    ours: Connection, process: Process, fork_server: ForkServer, stopping: Callable[[], bool],
    doing: str,
) -> Any:
    """What a child says next, while it is `doing` something; None if `stopping`.

    Raises:
        UserError: it says nothing for `LIMIT_S`.
        EOFError: it has ended.
    """
    # Looks are counted: while the whole machine is suspended there are none.
    looks = 0
    while not ours.poll(POLL_S):
        looks += 1
        if stopping():
            return None
        fork_server.tend()
        if not process.is_alive() and not ours.poll(0):
            raise EOFError
        if looks * POLL_S >= LIMIT_S:
            raise UserError(
                f"{doing} has not come back for {LIMIT_S:g} s: find out what it waits for, and do "
                "what takes so long, as a download, before the start"
            )
    return ours.recv()


def _probe(config: Config, checkpoint_dir: Path, run_dir: Path, pipe: Any) -> None:
    from rtagent.evaluation.probe import run_probe

    run_probe(config, checkpoint_dir, run_dir, pipe)


def _publish(handles: WorldHandles, resume: Path | None, pipe: Any) -> None:
    from rtagent.learning.beginning import publish_initial

    start_life("weights")
    answer: tuple[str, ...]
    try:
        publish_initial(World(handles), handles.config, resume)
        answer = ("published",)
    except UserError as error:
        answer = ("failed", str(error))
    except Exception:
        # Its lines do not fit into the one line of a refusal.
        traceback.print_exc()
        reason = current_traceback().splitlines()[-1]
        answer = ("failed", f"the first weights cannot be published: {reason}")
    pipe.send(answer)
