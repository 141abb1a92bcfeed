"""The one place that starts processes.

Why it is correct. Every child is forked by the fork server, which holds one thread and has run no
torch operation. The death signal is armed per *thread*: the fork server dies when the thread that
started it ends. So `start_fork_server` and `spawn` are called from the supervisor's thread alone,
which lives as long as the supervisor does.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from typing import Any

import multiprocess
from multiprocess import forkserver
from multiprocess import spawn as preparation

PRELOAD = "rtagent.preload"
PREFIX = "rtagent-"
SURROUNDINGS = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "1",
}
"""Environment variables of every child, unless the user has set them.

torch would use two threads per worker. glibc's malloc gives the free end of its heap back to the
system for its first arena alone, and a thread whose allocation fails moves to another one: what a
learner then gave back would not be given back, just when memory is short.
"""
STARTED_BY = "FORK_SERVER_STARTED_BY"
"""Tells the fork server the pid of its parent, and is gone before anybody else is started."""


def start_fork_server(preload: Sequence[str] = ()) -> None:
    """Start the fork server; it goes on importing while this process does other things.

    Args:
        preload: further modules to import once.
    """
    for name, value in SURROUNDINGS.items():
        os.environ.setdefault(name, value)
    multiprocess.get_context("forkserver").set_forkserver_preload([PRELOAD, *preload])
    # It must not take who adopts it for us, should we be killed before it looks.
    os.environ[STARTED_BY] = str(os.getpid())
    try:
        forkserver.ensure_running()
    finally:
        os.environ.pop(STARTED_BY, None)


def stop_fork_server() -> None:
    """End the fork server, and with it whatever child is left."""
    for pid in fork_server_pids():
        # It holds nothing, and would take seconds to unload torch in good order.
        os.kill(pid, signal.SIGKILL)
    forkserver._forkserver._stop()


def fork_server_pids() -> list[int]:
    """The process that forks the children; none before it is started."""
    pid = forkserver._forkserver._forkserver_pid
    return [] if pid is None else [pid]


def spawn(target: Callable[..., None], *args: Any, name: str) -> Any:
    """Start a child process.

    Args:
        target: a function at module level.
        args: its arguments, picklable.
        name: for messages.

    Returns:
        The `multiprocess` process object, started.
    """
    _leave_main_alone()
    process = multiprocess.get_context("forkserver").Process(
        target=target, args=args, name=PREFIX + name, daemon=True
    )
    process.start()
    return process


def pipe() -> Any:
    """A duplex pair of connections."""
    return multiprocess.Pipe()


def _leave_main_alone() -> None:
    """Keep our children from importing the program that uses us.

    `multiprocess` has every child run the parent's main script again, for what is defined there.
    Workers need nothing of it, and a script without a `__main__` guard would start itself anew.
    """
    prepare = preparation.get_preparation_data
    if getattr(prepare, "leaves_main_alone", False):
        return

    def prepare_ours(name: str) -> dict[str, Any]:
        data: dict[str, Any] = prepare(name)
        if name.startswith(PREFIX):
            data.pop("init_main_from_name", None)
            data.pop("init_main_from_path", None)
        return data

    prepare_ours.leaves_main_alone = True  # type: ignore[attr-defined]
    preparation.get_preparation_data = prepare_ours
