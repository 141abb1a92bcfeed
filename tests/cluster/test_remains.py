"""What is killed and removed when the process that started it ends, without Ray."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from benchmarks.process_figures import gone
from tests.conftest import eventually

OWNER = """
import subprocess, sys
from rtagent.cluster.remains import end_descendants_with_this_process
folder = end_descendants_with_this_process()
assert end_descendants_with_this_process() == folder
(folder / "socket").touch()
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, folder, flush=True)
sys.stdin.read()
"""


class Owner(NamedTuple):
    """A process that has begun a session, its child, and the folder of both."""

    process: subprocess.Popen[str]
    child: int
    folder: Path


@contextlib.contextmanager
def owner() -> Iterator[Owner]:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        child, folder = process.stdout.readline().split()
        yield Owner(process, int(child), Path(folder))


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
