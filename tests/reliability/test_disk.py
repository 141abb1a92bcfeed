"""A full and a read-only disk: saved files stay, an event says so, and the agent goes on."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks.daemon import RunningDaemon, options
from rtagent.storage.checkpoint import Checkpoint
from tests.conftest import eventually

from .disks import Disk, disk
from .watching import (
    FAST_CARTPOLE,
    await_checkpoint,
    await_ticks,
    events,
    newest_checkpoint,
    restarts,
)

pytestmark = pytest.mark.process


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Disk]:
    with disk(tmp_path / "state") as made:
        yield made


def check_it_goes_on_and_says_why(
    daemon: RunningDaemon, small_disk: Disk, kept: Checkpoint, cause: str
) -> None:
    eventually(
        lambda: any(cause in each["reason"] for each in events(daemon, "checkpoint_failed")),
        "the failure is told",
    )
    newest = newest_checkpoint(small_disk.folder)
    assert newest.counters.updates >= kept.counters.updates
    drafts = (small_disk.folder / "checkpoints").glob
    # Another attempt may be on its way, and leaves nothing either.
    eventually(lambda: not list(drafts(".checkpoint-*")), "no draft is left")
    updates = daemon.stats()["learning"]["updates"]
    eventually(lambda: daemon.stats()["learning"]["updates"] > updates, "it learns on")
    await_ticks(daemon, 50)
    assert daemon.status()["state"] == "running"
    assert restarts(daemon) == 0


def episodes_written(small_disk: Disk) -> str:
    (table,) = (small_disk.folder / "runs").glob("*/episodes.csv")
    return table.read_text()


def check_no_episode_is_missing(text: str) -> None:
    ticks, lengths = zip(
        *(map(int, line.split(",")[:2]) for line in text.splitlines()[1:]), strict=True
    )
    assert text.endswith("\n")
    # No episode is missing, and none is there twice.
    assert [b - a for a, b in pairwise(ticks)] == list(lengths[1:])


def test_a_disk_that_is_full_and_then_read_only(small_disk: Disk) -> None:
    with RunningDaemon(
        *FAST_CARTPOLE, state_dir=small_disk.folder, under=small_disk.under
    ) as daemon:
        kept = await_checkpoint(small_disk.folder)
        small_disk.fill(daemon)
        check_it_goes_on_and_says_why(daemon, small_disk, kept, small_disk.full)
        eventually(lambda: events(daemon, "recording_failed"), "that it cannot record is told")
        assert small_disk.full in events(daemon, "recording_failed")[0]["reason"]
        episodes = daemon.stats()["episodes"]["count"]
        learned = daemon.stats()["learning"]["updates"]
        small_disk.free(daemon)
        kept = await_checkpoint(small_disk.folder, after=learned)
        eventually(lambda: episodes_written(small_disk).count("\n") > episodes, "they are recorded")
        small_disk.forbid()
        check_it_goes_on_and_says_why(daemon, small_disk, kept, small_disk.read_only)
        learned = daemon.stats()["learning"]["updates"]
        small_disk.allow()
        await_checkpoint(small_disk.folder, after=learned)
        small_disk.forbid()
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.process.wait(120) == 0
        assert "Traceback" not in daemon.said()
        check_no_episode_is_missing(episodes_written(small_disk))
        small_disk.allow()


def refusal(small_disk: Disk) -> str:
    """What `rtagent serve` says when it cannot start on this disk."""
    command = [
        *small_disk.under, sys.executable, "-m", "rtagent", "serve", "--port", "0",
        "--state-dir", str(small_disk.folder), *options(*FAST_CARTPOLE),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    return done.stderr


@pytest.mark.parametrize("token", [False, True])
def test_a_start_on_a_full_disk_is_refused_in_one_line(small_disk: Disk, token: bool) -> None:
    if token:
        path = small_disk.folder / "token"
        path.write_text("t" * 64)
        path.chmod(0o600)
    small_disk.fill()
    said = refusal(small_disk)
    small_disk.free()
    assert small_disk.full in said
    assert ("sessions.json" if token else "token") in said


def test_a_start_on_a_read_only_disk_is_refused_in_one_line(small_disk: Disk) -> None:
    small_disk.forbid()
    said = refusal(small_disk)
    small_disk.allow()
    assert f"state directory {small_disk.folder}: {small_disk.read_only}" in said
