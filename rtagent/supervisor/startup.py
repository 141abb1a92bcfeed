"""Work that must be done once before the workers of a run can start, in short-lived processes.

The supervisor loads neither torch nor the environment; these processes do, and end.

Why it is correct. Such a process writes its answer into a memory file of the supervisor, and then
says through its pipe that it is there: so nothing is read by halves, and one that is killed or
stopped while it answers does not hold the supervisor up.
"""

from __future__ import annotations

import os
import pickle
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from multiprocess import reduction

from rtagent.config import Config
from rtagent.errors import LIMITS, UserError
from rtagent.logs.shortening import current_traceback
from rtagent.memory.blueprint import Blueprint
from rtagent.memory.world import World, WorldHandles
from rtagent.processes.fork_server import Inherited
from rtagent.processes.launch import ForkServer, Process, exit_code
from rtagent.processes.pipe import Pipe
from rtagent.processes.worker import LAST_WORDS_S, start_life
from rtagent.supervisor.child import spawned
from rtagent.supervisor.children import KILL_LIMIT_S
from rtagent.telemetry.run_record import begin_run

POLL_S = 0.1
LIMIT_S = 900.0
"""How long a step of a child may take: a policy may be downloaded in it."""

Doing = Callable[[str], object]
"""A child tells by it what it does next, since that may never come back."""

Events = Sequence[tuple[str, dict[str, Any]]]
"""Kinds and details of events to report."""


@dataclass(frozen=True)
class Found:
    """What the probe found, and events to report of it."""

    blueprint: Blueprint
    resume: Path | None
    events: Events = ()


def find_shapes(
    fork_server: ForkServer, config: Config, checkpoint_dir: Path, stopping: Callable[[], bool]
) -> Found | None:
    """Build environment and network once, and check the checkpoints.

    Args:
        checkpoint_dir: where a checkpoint may be.
        stopping: called again and again; ends the wait once it is true.

    Returns:
        What was found; None if the run is to stop.

    Raises:
        UserError: something cannot be built or used as configured.
    """
    ended = (
        f"the environment or the network of env.id = {config.env.id!r} ended its process "
        "({code}) while it was being built"
    )
    answer = _ask(
        fork_server, stopping, "probe", ended, "environment and policy cannot be tried out",
        _probe, config, checkpoint_dir,
    )
    return None if answer is None else Found(*answer)


def record_run(
    fork_server: ForkServer, config: Config, run_dir: Path, stopping: Callable[[], bool]
) -> Events | None:
    """Remove the folders of the oldest runs, and write the run's record.

    Only once nothing can be refused any more: a start that is refused again and again would remove
    them all, for runs that have not begun.

    Args:
        run_dir: where the record of the run is written.
        stopping: called again and again; ends the wait once it is true.

    Returns:
        Events to report; None if the run is to stop.

    Raises:
        UserError: no process can be started, or the state directory does not answer.
    """
    ended = "the process that writes the record of the run ended ({code})"
    events: Events | None = _ask(
        fork_server, stopping, "record", ended, "the record of the run cannot be written",
        _record, config, run_dir, list(map(str, sys.argv)),
    )
    return events


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
    ended = "the process that publishes the first weights ended ({code})"
    _ask(
        fork_server, stopping, "weights", ended, "the first weights cannot be published",
        _publish, handles, resume,
    )


def _ask(
    fork_server: ForkServer, stopping: Callable[[], bool], name: str, ended: str, failed: str,
    body: Callable[..., Any], *args: Any,
) -> Any:
    """What `body` returns in a child, given `args` and a `Doing`; None if `stopping`.

    Args:
        ended: the error if the child ends without an answer; `{code}` in it names the exit code.
        failed: begins the error if the body raises something else than a `UserError`.

    Raises:
        UserError: the body raises one, the child ends without an answer, does not come back, or
            cannot be started.
    """
    with ExitStack() as opened:
        try:
            file = opened.enter_context(open(os.memfd_create("rtagent-answer"), "rb"))
            process, ours = spawned(partial(
                fork_server.spawn, _answer, body, args, failed, _ToFill(file)
            ))
        except OSError as error:
            raise UserError(f"no process can be started: {error.strerror}; {LIMITS}") from None
        opened.callback(ours.close)
        message: Any = "doing", f"the process {name}"
        try:
            while message is not None and message[0] == "doing":
                message = _next_message(ours, process, fork_server, stopping, message[1])
        except EOFError:
            process.join(POLL_S)
            why = f"{process.failure}; {LIMITS}" if process.failure else None
            raise UserError(why or ended.format(code=exit_code(process.exitcode))) from None
        finally:
            # A simulator that it has started would outlive it, unless it has closed its world.
            process.kill(whole_tree=message is None or message[0] == "doing")
            process.join(KILL_LIMIT_S)
            process.close()
        answer = refusal = None
        if message is not None:
            # The child has the same offset.
            file.seek(0)
            answer, refusal = pickle.load(file)
    if refusal is not None:
        raise UserError(refusal)
    return answer


def _next_message(
    ours: Pipe, process: Process, fork_server: ForkServer, stopping: Callable[[], bool], doing: str
) -> Any:
    """The next message of a child, while it is `doing` something; None if `stopping`.

    Raises:
        UserError: it sends none for `LIMIT_S`.
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


class _ToFill:
    """A file that a child gets in this object's place, open for writing."""

    def __init__(self, file: BinaryIO) -> None:
        self._descriptor = file.fileno()

    def __reduce__(self) -> tuple[Callable[..., BinaryIO], tuple[Any, ...]]:
        return _inherited_file, (reduction.DupFd(self._descriptor),)


def _inherited_file(inherited: Inherited) -> BinaryIO:
    return open(inherited.detach(), "wb")


def _answer(
    body: Callable[..., Any], args: Sequence[Any], failed: str, file: BinaryIO, pipe: Pipe
) -> None:
    """Write what `body` returns, or why it does not. Runs in the child."""
    answer = refusal = None
    try:
        answer = body(*args, lambda what: pipe.send(("doing", what)))
    except UserError as error:
        refusal = str(error)
    except Exception:
        # Its lines, which may name the user's own code, do not fit into the one line of a refusal.
        traceback.print_exc()
        refusal = f"{failed}: {current_traceback().splitlines()[-1]}"
    with file:
        pickle.dump((answer, refusal), file)
    pipe.send(("answered",), LAST_WORDS_S)


def _probe(config: Config, checkpoint_dir: Path, doing: Doing) -> Any:
    from rtagent.evaluation.probe import run_probe

    return run_probe(config, checkpoint_dir, doing)


def _record(config: Config, run_dir: Path, command: Sequence[str], doing: Doing) -> Events:
    start_life("record")
    doing(f"the state directory {config.state_dir}")
    return begin_run(config, run_dir, command)


def _publish(handles: WorldHandles, resume: Path | None, _: Doing) -> None:
    from rtagent.learning.beginning import publish_initial

    start_life("weights")
    publish_initial(World(handles), handles.config, resume)
