"""What the tests of a real daemon look at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.daemon import RunningDaemon
from rtagent.storage import checkpoint as checkpoints
from rtagent.storage.checkpoint import Checkpoint
from tests.conftest import eventually

FAST_CARTPOLE = (
    "--set", "env.id=CartPole-v1", "--set", "env.rate_hz=100", "--set", "replay.capacity=20000",
    "--set", "inference.processes=1", "--set", "learning.learning_starts=100",
    "--set", "run.checkpoint_every_s=1",
)
"""A daemon that has learned and saved something within seconds."""


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
