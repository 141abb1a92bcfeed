"""How the tests of a real daemon watch it."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from benchmarks.daemon import RunningDaemon
from benchmarks.process_figures import gone
from rtagent.processes.kernel_state import descendants
from rtagent.storage import checkpoint as checkpoints
from rtagent.storage.checkpoint import Checkpoint
from tests.conftest import eventually

FAST_CARTPOLE = (
    "env.id=CartPole-v1", "env.rate_hz=100", "replay.capacity=20000", "inference.processes=1",
    "learning.learning_starts=100", "learning.updates_per_tick=0.25",
    "run.checkpoint_every_s=1",
)
"""A daemon that has learned and saved something within seconds."""
LEADING_A_GROUP = ("setsid", "env", "--default-signal=HUP")
"""What a daemon runs under that is sent signals as a group.

Under nohup a daemon goes on at SIGHUP, and whoever runs the tests may be under it.
"""


def events(daemon: RunningDaemon, kind: str) -> list[dict[str, Any]]:
    """What happened of one kind, newest first."""
    found: list[dict[str, Any]] = daemon.get(f"/v1/events?kind={kind}")["events"]
    return found


def restarts(daemon: RunningDaemon) -> int:
    """Lives of its processes after the first, all together."""
    return sum(role["restarts"] for role in daemon.status()["roles"])


def newest_checkpoint(state_dir: Path) -> Checkpoint | None:
    """The one that a next start would resume from."""
    path = checkpoints.newest(state_dir / "checkpoints")
    return None if path is None else checkpoints.load(path)


def await_checkpoint(state_dir: Path, after: int = 0) -> Checkpoint:
    """Wait until the newest checkpoint has more updates than that behind it."""
    found: list[Checkpoint] = []

    def newer() -> bool:
        newest = newest_checkpoint(state_dir)
        if newest is not None and newest.counters.updates > after:
            found.append(newest)
        return bool(found)

    eventually(newer, f"a checkpoint after {after} updates")
    return found[0]


def await_ticks(daemon: RunningDaemon, more: int) -> None:
    """Wait until the world has gone on by so many ticks."""
    before = daemon.stats()["clock"]["ticks"]
    eventually(lambda: daemon.stats()["clock"]["ticks"] >= before + more, "the world goes on")


def check_group_ends_in_order(daemon: RunningDaemon, number: signal.Signals) -> None:
    """Send a signal to all processes of a daemon that leads a group: it keeps what it learned."""
    learned = daemon.stats()["learning"]["updates"]
    family = descendants(daemon.process.pid)
    os.killpg(daemon.process.pid, number)
    eventually(lambda: daemon.process.poll() is not None, "stopped")
    assert daemon.process.returncode == 0, daemon.said()
    eventually(lambda: all(map(gone, family)), "every process is gone")
    assert "Traceback" not in daemon.said()
    assert not (daemon.state_dir / "daemon.json").exists()
    newest = newest_checkpoint(daemon.state_dir)
    assert newest.counters.updates >= learned
