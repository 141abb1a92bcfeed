"""The life of a worker process, without one."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from rtagent.errors import UserError
from rtagent.processes.pipe import open_pipe
from rtagent.processes.worker import EXIT_USER_ERROR, WorkerContext, say_last

PRINTS = """
from types import SimpleNamespace
from rtagent.processes import worker
from rtagent.errors import UserError
from rtagent.processes.pipe import open_pipe

def fails(handles):
    print("printed by an environment")
    raise worker.UserError("no such world")

worker.start_life, worker.sharpen_timers, worker.World = print, print, fails
ours, theirs = open_pipe()
worker.run_worker(SimpleNamespace(role="environment", index=0, handles=None), theirs)
"""


@pytest.mark.process
def test_buffered_output_of_a_worker_that_fails_is_flushed() -> None:
    buffered = {name: each for name, each in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(
        [sys.executable, "-c", PRINTS], capture_output=True, text=True, timeout=300, check=False,
        env=buffered,
    )
    assert done.returncode == EXIT_USER_ERROR, done.stderr
    assert "printed by an environment" in done.stdout


def test_an_error_of_any_length_and_letters_is_told() -> None:
    """JSON takes twelve bytes for such a letter, and a message has 64 KiB."""
    ours, theirs = open_pipe()
    say_last(theirs, UserError("no motor\n" + f"{'😀' * 1000}\n" * 1000 + "no gear"))
    ((form, said),) = ours.receive()
    assert (form, said["boot"]) == ("failed", True)
    assert said["error"].startswith("no motor\n")
    assert said["error"].endswith("\nno gear")
    ours.close()


def test_dropped_events_are_counted_in_the_next() -> None:
    ours, theirs = open_pipe()
    context = WorkerContext.__new__(WorkerContext)
    context.pipe, context.dropped_events = theirs, 0
    for _ in range(10_000):
        context.event("world", news="x" * 1000)
        if context.dropped_events:
            break
    context.event("world")
    heard: list[Any] = ours.receive(10_000)
    context.event("world", news="last")
    (said,) = ours.receive()
    assert said[1] == {"events_dropped_before": 2, "news": "last", "kind": "world"}
    assert not any("events_dropped_before" in said for _, said in heard)
    assert context.dropped_events == 0
    for end in (ours, theirs):
        end.close()
