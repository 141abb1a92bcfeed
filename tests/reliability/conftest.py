"""For the tests that kill processes: checks of the ledger's rows, and of the kernel's records."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from benchmarks.daemon import RunningDaemon
from rtagent import Runtime
from rtagent.clock import NANO
from rtagent.memory.ledger import Rows, checksum
from rtagent.memory.world import World
from rtagent.staggering.arbiter import Source
from tests.conftest import eventually, role

SLOWER = 10.0
"""A limit is lifted where an interpreter takes longer than this part of it: 0.1 s for a second."""
PATIENT_TICKS = 100
PATIENT_CLOCK = f"env.max_catch_up_ticks={PATIENT_TICKS}"
"""With this a short hold-up of the whole machine does not make the clock slip."""
SLEEP_S = 0.05


class Machine:
    """How slow this machine is while a test runs, measured beside it.

    Attributes:
        worst_s: longest life of an interpreter that has nothing to do.
        stalled_s: by how much a sleep of this process has been longer than it asked for, at most.
    """

    def __init__(self) -> None:
        self.worst_s = self.stalled_s = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sleep, daemon=True)
        self._thread.start()
        self.measure()

    def close(self) -> None:
        """End what is measured all the time."""
        self._over.set()
        self._thread.join()

    def _sleep(self) -> None:
        start = time.monotonic()
        while not self._over.wait(SLEEP_S):
            now = time.monotonic()
            self.stalled_s = max(self.stalled_s, now - start - SLEEP_S)
            start = now

    def measure(self) -> None:
        """Look again."""
        start = time.monotonic()
        subprocess.run([sys.executable, "-c", ""], check=True)
        self.worst_s = max(self.worst_s, time.monotonic() - start)

    def allows(self, limit_s: float) -> float:
        """A limit, or more where the machine is several times slower than usual, or stood still."""
        return max(limit_s, SLOWER * self.worst_s) + self.stalled_s

    def excuses(self, slips: int, rate_hz: float) -> bool:
        """Whether a patient clock never slipped, or the machine stood still for about as long."""
        return slips == 0 or self.stalled_s > 0.5 * PATIENT_TICKS / rate_hz


@pytest.fixture
def machine() -> Iterator[Machine]:
    """How slow this machine is."""
    found = Machine()
    yield found
    found.close()


def whole_rows(world: World, since: int | None = None) -> Rows:
    """Every row of the run since a tick: none is missing, out of order or damaged."""
    first = world.first_tick if since is None else since
    rows = world.ledger.read(first, world.ledger.newest + 1)
    np.testing.assert_array_equal(rows["tick"], np.arange(first, first + len(rows)))
    assert all(checksum(row) == row["crc"] for row in rows)
    return rows


def slips(rows: Rows, rate_hz: float) -> int:
    """Ticks that were due at another time than one period after the tick before them."""
    due_ns = rows["time_ns"] - rows["lateness_ns"]
    return int((np.abs(np.diff(due_ns) - NANO / rate_hz) > 1000).sum())


def acted_again_ns(rows: Rows, worker: int, since_ns: int) -> int | None:
    """When an inference process registered its first executed action after a moment."""
    later = rows[(rows["worker"] == worker) & (rows["registered_ns"] > since_ns)]
    return int(later["registered_ns"].min()) if len(later) else None


def default_ticks(rows: Rows) -> int:
    """Ticks on which the agent did not act."""
    return int((rows["source"] == Source.DEFAULT).sum())


def wait_for_true_inaction(runtime: Runtime) -> None:
    """Until the figures count as many default ticks as the ledger.

    The world goes on while the two are read, so they are read until no tick came between.
    """
    said: dict[str, Any] = {}

    def agree() -> bool:
        before = runtime.world.ledger.newest
        said.update(runtime.stats()["actions"])
        rows = whole_rows(runtime.world)
        return len(rows) == before + 1 and said["default"] == default_ticks(rows)

    eventually(agree, "the figure of default ticks is the ledger's")


def hit(pid: int, number: int = signal.SIGKILL) -> int:
    """Send a signal to a process; the moment, monotonic nanoseconds."""
    now = time.monotonic_ns()
    os.kill(pid, number)
    return now


def pid_of(runtime: Runtime, name: str) -> int | None:
    """The process behind a name, if it works."""
    found = role(runtime, name)
    pid: int | None = found["pid"] if found.get("state") == "running" else None
    return pid


def updates(daemon: RunningDaemon) -> int:
    """Gradients applied so far; -1 while the service is away."""
    try:
        return int(daemon.stats()["learning"]["updates"])
    except httpx.TransportError:
        return -1


def memfds(pid: int) -> dict[tuple[int, int], str]:
    """Names of the anonymous shared memory that a process has open, by device and inode."""
    return {(about.st_dev, about.st_ino): name for name, about in _memfds(pid)}


def _memfds(pid: int) -> Iterator[tuple[str, os.stat_result]]:
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            name, about = os.readlink(link), os.stat(link)
            if name.startswith("/memfd:"):
                yield name, about


def holders(inodes: Collection[tuple[int, int]]) -> set[int]:
    """The processes of this machine that have any of these files open or mapped."""
    numbers = {inode for _, inode in inodes}
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            pid = int(folder.name)
            if memfds(pid).keys() & set(inodes):
                found.add(pid)
            for line in (folder / "maps").read_text().splitlines():
                fields = line.split()
                if len(fields) > 5 and "/memfd:" in fields[5] and int(fields[4]) in numbers:
                    found.add(pid)
    return found


def shared_bytes() -> int:
    """Shared memory of the whole machine, by the kernel's count."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("Shmem:"))


def held_bytes(pid: int) -> dict[str, int]:
    """Bytes of memory behind each anonymous file that a process has open."""
    return {name.split()[0]: about.st_blocks * 512 for name, about in _memfds(pid)}
