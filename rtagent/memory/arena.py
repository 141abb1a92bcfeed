"""Anonymous shared memory that cannot leak.

Why it is correct. An arena is a `memfd`: it has no name, so when the last process that maps it is
gone, however it died, the kernel frees it. The supervisor holds the descriptor; every other
process opens `/proc/<supervisor>/fd/<n>` and keeps the mapping. Opening by that path makes a new
open file description, so no lock or offset is shared by accident, and no resource tracker takes
part. Memory that the hot path writes is reserved by `posix_fallocate` beforehand: a lack of
memory is then an error at that call, in the supervisor, and never a SIGBUS in a worker.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rtagent.errors import UserError

PAGE = mmap.PAGESIZE
FALLOCATE_STEP = 8 << 20
"""Bytes reserved at a time for a sparse arena: about 2 ms of work."""


@dataclass(frozen=True)
class ArenaHandle:
    """How another process finds an arena. Picklable."""

    name: str
    owner_pid: int
    descriptor: int
    size: int

    def map(self) -> mmap.mmap:
        """Map the arena into this process, for reading and writing.

        Raises:
            FileNotFoundError: the owner is gone.
        """
        descriptor = os.open(f"/proc/{self.owner_pid}/fd/{self.descriptor}", os.O_RDWR)
        try:
            return mmap.mmap(descriptor, self.size)
        finally:
            os.close(descriptor)


class Arena:
    """A block of shared memory owned by this process.

    Args:
        name: for error messages and `/proc/<pid>/maps`.
        size: bytes; rounded up to whole pages.
        sparse: reserve nothing yet; `reserve` does so piece by piece.

    Raises:
        UserError: the memory is not there.
    """

    def __init__(self, name: str, size: int, *, sparse: bool = False) -> None:
        self.size = -(-max(size, 1) // PAGE) * PAGE
        self.name = name
        self.reserved = 0
        self.descriptor = os.memfd_create(f"rtagent-{name}", os.MFD_CLOEXEC)
        try:
            os.ftruncate(self.descriptor, self.size)
            if not sparse:
                self.reserve(self.size)
        except BaseException:
            self.close()
            raise

    @property
    def handle(self) -> ArenaHandle:
        """What to send to other processes."""
        return ArenaHandle(self.name, os.getpid(), self.descriptor, self.size)

    def reserve(self, until: int) -> None:
        """Make the first `until` bytes of the arena certain.

        Raises:
            UserError: the memory is not there.
        """
        until = min(self.size, -(-until // PAGE) * PAGE)
        try:
            while self.reserved < until:
                step = min(FALLOCATE_STEP, until - self.reserved)
                os.posix_fallocate(self.descriptor, self.reserved, step)
                self.reserved += step
        except OSError as error:
            raise UserError(
                f"no memory for {self.name}: {error.strerror} after {self.reserved >> 20} of "
                f"{self.size >> 20} MiB; lower replay.capacity or policy.width"
            ) from None

    def close(self) -> None:
        """Give up the descriptor; mappings elsewhere stay valid."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def available_memory() -> int:
    """Bytes that this process may still use: the machine's, or its cgroup's if that is less."""
    available = 0
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            available = int(line.split()[1]) * 1024
    return min([available, *_cgroup_rest(Path("/sys/fs/cgroup"))])


def check_memory(needs: Mapping[str, int]) -> None:
    """Refuse a configuration whose memory, grown to its whole size, is not there.

    Args:
        needs: bytes by purpose.

    Raises:
        UserError: names the largest purpose and both figures.
    """
    total, available = sum(needs.values()), available_memory()
    if total > available:
        largest = max(needs, key=lambda name: needs[name])
        raise UserError(
            f"too little memory: {total >> 20} MiB are needed ({needs[largest] >> 20} MiB of it "
            f"for {largest}) and {available >> 20} MiB are available; lower replay.capacity"
        )


def _cgroup_rest(root: Path) -> list[int]:
    """Free bytes under the limits of this process's cgroup (version 2) and its ancestors."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    paths = [line.partition("::")[2].lstrip("/") for line in lines if line.startswith("0::")]
    rests = []
    for path in paths:
        group = root / path
        for folder in [group, *group.parents]:
            try:
                limit = (folder / "memory.max").read_text().strip()
                used = int((folder / "memory.current").read_text())
                if limit != "max":
                    rests.append(max(0, int(limit) - used))
            except (OSError, ValueError):
                continue
    return rests
