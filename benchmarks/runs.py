"""A run inside the measuring program, and what its ledger says of some seconds."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

import rtagent
from rtagent.memory.ledger import Rows
from rtagent.telemetry.verdicts import failure_in


@contextmanager
def acting_run(*settings: str, limit_s: float = 60.0) -> Iterator[rtagent.Runtime]:
    """A run with a state directory of its own, which acts within `limit_s`."""
    with tempfile.TemporaryDirectory() as folder:
        config = rtagent.load_config(None, [f"run.state_dir={folder}", *settings], {})
        with rtagent.Runtime(config) as runtime:
            runtime.wait_ready(limit_s)
            yield runtime


def wait_learning(runtime: rtagent.Runtime) -> None:
    """Wait for the first update.

    Raises:
        RuntimeError: a process keeps failing, so there will be none.
    """
    while not runtime.stats()["learning"]["updates"]:
        check_whole(runtime)
        time.sleep(0.1)


def check_whole(runtime: rtagent.Runtime) -> None:
    """Raise a `RuntimeError` if a process keeps failing: nobody waits for what it does not do."""
    if (failure := failure_in(runtime.status())) is not None:
        raise RuntimeError(failure)


def rows_of(runtime: rtagent.Runtime, seconds: float) -> Rows:
    """The ledger's rows of the next seconds.

    Raises:
        RuntimeError: a process keeps failing, so they are those of another run.
    """
    ledger = runtime.world.ledger
    first = ledger.newest + 1
    time.sleep(seconds)
    check_whole(runtime)
    rows: Rows = ledger.read(first, ledger.newest + 1)
    return rows
