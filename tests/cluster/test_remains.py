"""What is killed and removed when the process that started it ends, without Ray."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from unittest.mock import Mock

import pytest

from benchmarks.process_figures import gone
from rtagent.cluster import remains
from tests.conftest import eventually, open_descriptors

OWNER = r"""
import os, signal, subprocess, sys
from rtagent.cluster.remains import end_descendants_with_this_process
# A KeyboardInterrupt would wait where the signal comes just before the read.
signal.signal(signal.SIGINT, signal.SIG_DFL)
folder = end_descendants_with_this_process()
assert end_descendants_with_this_process() == folder
(folder / "socket").touch()
# A process's name may be no text.
program = folder / "\udcc3"
program.symlink_to(sys.executable)
child = subprocess.Popen([program, "-c", "import time; time.sleep(600)"])
print(os.getpid(), child.pid, folder, flush=True)
sys.stdin.read()
"""


class Owner(NamedTuple):
    """A process that has begun a session, its child, and the folder of both.

    `process` is what the test has started, and `pid` is that process or a shell's child.
    """

    process: subprocess.Popen[str]
    pid: int
    child: int
    folder: Path

    @classmethod
    def of(cls, process: subprocess.Popen[str], line: str) -> Owner:
        """What a process has said that it has started."""
        pid, child, folder = line.split()
        return cls(process, int(pid), int(child), Path(folder))


@contextlib.contextmanager
def owner() -> Iterator[Owner]:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield Owner.of(process, process.stdout.readline())


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_signals_to_the_old_group_reach_the_owner(number: int) -> None:
    """As Ctrl-C in a terminal does, where a shell without job control has started it."""
    # What is ignored here, as under nohup, the shell could not catch.
    before = signal.signal(number, signal.SIG_DFL)
    shell = subprocess.Popen(
        ["sh", "-c", 'trap "wait" INT HUP; "$0" -c "$1"', sys.executable, OWNER],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        start_new_session=True,
    )
    signal.signal(number, before)
    with shell:
        started = Owner.of(shell, shell.stdout.readline())
        os.killpg(shell.pid, number)
        try:
            eventually(lambda: gone(started.pid), "the owner ends")
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(started.pid, signal.SIGKILL)
        eventually(lambda: gone(started.child), "its child is killed")
        eventually(lambda: not started.folder.exists(), "its folder is removed")


@pytest.mark.process
@pytest.mark.parametrize("killed", [True, False])
def test_children_and_files_end_with_their_owner_alone(killed: bool) -> None:
    with owner() as first, owner() as second:
        assert first.folder != second.folder
        assert first.folder.stat().st_mode & 0o777 == 0o700
        if killed:
            first.process.kill()
        else:
            first.process.communicate("")
        eventually(lambda: gone(first.child), "its child is killed")
        eventually(lambda: not first.folder.exists(), "its folder is removed")
        assert not gone(second.child)
        assert (second.folder / "socket").exists()


def test_without_room_for_a_watcher_nothing_is_left_and_it_can_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Signals stayed blocked, and a second attempt took the folder for one that is watched.
    monkeypatch.setattr(remains, "_folders", {})
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(os, "fork", Mock(side_effect=BlockingIOError))
    descriptors = open_descriptors()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    for _ in range(2):
        with pytest.raises(BlockingIOError):
            remains.end_descendants_with_this_process()
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == mask
    assert open_descriptors().items() <= descriptors.items()
    assert not list(tmp_path.iterdir())
