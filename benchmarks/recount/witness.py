"""What a running daemon did, seen from outside: ledger, metrics, kernel.

The memory of the daemon is found through `/proc` and mapped for reading. Of the program only
declarations are used (the layouts of the metrics, desired state, R3's decisions); what the figures
are and how they come about is not. A thread looks twenty times a second, for the metrics keep the
registrations of a while only, and of a process that was replaced only its successor. Whoever asks
for a view looks once more; a lock lets one look at a time.
"""

from __future__ import annotations

import mmap
import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.process_figures import gone, memory_of
from benchmarks.recount.raw_ledger import ROW, Ledger, Rows, arenas
from rtagent.config import Config
from rtagent.memory.control import Control
from rtagent.memory.horizon import HorizonRecord
from rtagent.memory.process_metrics import ProcessMetrics
from rtagent.processes.kernel_state import descendants

REGISTERED = np.dtype(
    [("registered_ns", "<i8"), ("latency_ns", "<i8"), ("tick", "<i8"), ("ticks", "<i8"),
     ("worker", "<i8")]
)
EVERY_S = 0.05
MEMORY_EVERY_S = 0.5
"""Walking through the page tables of all processes takes some milliseconds."""


@dataclass(frozen=True)
class View:
    """Everything that was known at one moment.

    Attributes:
        at: seconds, monotonic.
        rows: every ledger row since the start.
        registered: every registered action since the start.
        ready: whether each inference process says that it is ready.
        learners: the record of each learner, as a dictionary.
        horizon: R3's newest horizon.
        decisions: every decision of R3 so far, oldest first.
        pages: bytes that the kernel holds for each arena.
        since: monotonic seconds at which the inference settings last changed.
    """

    at: float
    rows: Rows
    registered: npt.NDArray[Any]
    ready: list[bool]
    learners: list[dict[str, Any]]
    horizon: Any
    decisions: list[Any]
    pages: dict[str, int]
    since: float = 0.0

    def until(self, ticks: int) -> View:
        """The same with the first `ticks` rows alone."""
        return replace(self, rows=self.rows[:ticks])


class Witness:
    """Follows a daemon.

    Args:
        supervisor: pid of the supervisor.
        capacity: `replay.capacity`.

    Attributes:
        lives: pids that each process has had since it was last wanted, by role and index.
        restarts: of each process before that.
        since: monotonic seconds at which the first of these was seen.
        applied: (seconds, gradients applied by each learner) of every look.
        memory: (seconds, bytes of all processes and arenas), every `MEMORY_EVERY_S`.
        sizes: bytes of each arena.
    """

    def __init__(self, supervisor: int, capacity: int) -> None:
        self.supervisor = supervisor
        self.ledger = Ledger(supervisor, capacity)
        self._descriptors = arenas(f"/proc/{supervisor}/fd")
        self._metrics = ProcessMetrics(memoryview(self._map("metrics")))
        self._horizon = HorizonRecord(memoryview(self._map("horizon")))
        self._control = Control(memoryview(self._map("control")), Config())
        self.sizes = {name: os.stat(path).st_size for name, path in self._descriptors.items()}
        self._rows: list[Rows] = []
        self._registered: list[npt.NDArray[Any]] = [np.zeros(0, REGISTERED)]
        self._seen: defaultdict[int, int] = defaultdict(int)
        self._decisions: list[Any] = []
        self.lives: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
        self.restarts: defaultdict[tuple[str, int], int] = defaultdict(int)
        self.since: defaultdict[tuple[str, int], float] = defaultdict(float)
        self._dismissed: set[int] = set()
        self.applied: list[tuple[float, list[int]]] = []
        self.memory: list[tuple[float, int]] = []
        self._lock, self._done = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._follow)

    def _map(self, name: str) -> mmap.mmap:
        # The layouts take writable memory; nothing is written, and nothing would arrive.
        descriptor = os.open(self._descriptors[name], os.O_RDONLY)
        try:
            return mmap.mmap(descriptor, 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
        finally:
            os.close(descriptor)

    def __enter__(self) -> Witness:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._thread.join()

    def _follow(self) -> None:
        while not self._done.wait(EVERY_S):
            with self._lock:
                self._look()
            if not self.memory or time.monotonic() - self.memory[-1][0] >= MEMORY_EVERY_S:
                used = sum(map(_own_bytes, (self.supervisor, *descendants(self.supervisor))))
                self.memory.append((time.monotonic(), used + sum(self._pages().values())))

    def view(self) -> View:
        """What is known now; memory as of the last measurement."""
        with self._lock:
            return self._view()

    def _view(self) -> View:
        self._look()
        return View(
            at=time.monotonic(),
            rows=np.concatenate(self._rows) if self._rows else np.zeros(0, ROW),
            registered=np.concatenate(self._registered),
            ready=[bool(each.ready) for each in self._metrics.inference],
            learners=[each.values() for each in self._metrics.learners],
            horizon=self._horizon.read(),
            decisions=list(self._decisions),
            pages=self._pages(),
            since=self._control.desired.inference_since,
        )

    @contextmanager
    def losses(self) -> Iterator[list[float | None]]:
        """Every loss that was the newest during the block; None if nothing has been learned."""
        records, seen = self._metrics.learners, list[float | None]()
        done = threading.Event()

        def watch() -> None:
            while True:
                newest = max(records, key=lambda each: each.applied_ns)
                loss = newest.loss if newest.applied_ns else None
                if not seen or seen[-1] != loss:
                    seen.append(loss)
                if done.is_set():
                    return

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            yield seen
        finally:
            done.set()
            watcher.join()

    def dismiss(self, role: str, processes: int) -> None:
        """Processes from this number on are not wanted any more: their end is no restart."""
        with self._lock:
            for place in [each for each in self.lives if each[0] == role and each[1] >= processes]:
                pids = self.lives.pop(place)
                self.restarts[place] += max(0, len(pids) - 1)
                self._dismissed.update(pids)

    def alive(self, role: str, index: int) -> bool:
        """Whether the process of this role and index lives, and belongs to the daemon."""
        pids = self.lives.get((role, index), [])
        return bool(pids) and not gone(pids[-1]) and pids[-1] in descendants(self.supervisor)

    def _look(self) -> None:
        now = time.monotonic()
        rows = self.ledger.read()
        if len(rows):
            self._rows.append(rows)
        self._look_at_registrations()
        for role, records in (
            ("environment", [self._metrics.environment]), ("inference", self._metrics.inference),
            ("learner", self._metrics.learners),
        ):
            for index, pid in enumerate(each.pid for each in records):
                pids = self.lives[role, index]
                if not pid or pid in self._dismissed or (pids and pids[-1] == pid):
                    continue
                if not pids:
                    self.since[role, index] = now
                pids.append(pid)
        self.applied.append((time.monotonic(), [each.applied for each in self._metrics.learners]))
        known = self._decisions[-1].number + 1 if self._decisions else 0
        self._decisions += self._horizon.decisions(since=known)

    def _look_at_registrations(self) -> None:
        for worker, record in enumerate(self._metrics.inference):
            registrations, seen = record.registrations, self._seen[worker]
            count = -1
            while count != registrations.count:
                count = registrations.count
                new = registrations.newest(count - seen)
            found = np.zeros(len(new), REGISTERED)
            for name in ("registered_ns", "latency_ns", "tick", "ticks"):
                found[name] = new[name]
            found["worker"] = worker
            self._registered.append(found)
            self._seen[worker] = count

    def _pages(self) -> dict[str, int]:
        return {name: os.stat(path).st_blocks * 512 for name, path in self._descriptors.items()}


def _own_bytes(pid: int) -> int:
    """Proportional set size without shared memory; 0 if the process is gone."""
    found = memory_of(pid, "smaps_rollup")
    return found.get("Pss", 0) - found.get("Pss_Shmem", 0)
