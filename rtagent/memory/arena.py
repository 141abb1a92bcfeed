"""Anonymous shared memory that cannot leak.

Why it is correct. An arena is a `memfd`: it has no name, so when the last process that maps it is
gone, however it died, the kernel frees it. The supervisor holds the descriptor; every other
process opens `/proc/<supervisor>/fd/<n>` and keeps the mapping. Opening by that path makes a new
open file description, so no lock or offset is shared by accident, and no resource tracker takes
part. Memory that the hot path writes is reserved by `posix_fallocate` beforehand: a lack of
memory is then an error at that call, in the supervisor, and never a SIGBUS in a worker. `punch`
takes pages back from every process that maps them, locked or not; their bytes read as zero from
then on, and a page that is read or written again takes memory again.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rtagent.errors import UserError
from rtagent.memory.usage import memory_levels

PAGE = mmap.PAGESIZE
FALLOCATE_STEP = 8 << 20
"""Bytes reserved at a time: about 2 ms of work."""

OF_NETWORK = frozenset({"learner", "weights", "engine"})
"""The purposes whose memory follows from the number of parameters."""

_PR_GET_DUMPABLE = 3
_PR_SET_DUMPABLE = 4
_FALLOC_FL_KEEP_SIZE = 1
_FALLOC_FL_PUNCH_HOLE = 2
_fallocate = ctypes.CDLL(None, use_errno=True).fallocate
_fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)


@dataclass(frozen=True)
class ArenaHandle:
    """How another process finds an arena. Picklable."""

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
        size: bytes, at least 1; rounded up to whole pages.
        sparse: reserve nothing yet; `reserve` and `punch` do so piece by piece.

    Raises:
        UserError: the memory is not available.
    """

    def __init__(self, name: str, size: int, *, sparse: bool = False) -> None:
        self.size = -(-size // PAGE) * PAGE
        self.name = name
        self.descriptor = -1
        flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
        try:
            self.descriptor = os.memfd_create(f"rtagent-{name}", flags)
            os.ftruncate(self.descriptor, self.size)
        except OSError as error:
            self.close()
            raise UserError(
                f"no memory for {name}: {error.strerror}; look at `ulimit -n` and `ulimit -f`"
            ) from None
        try:
            # If the file shrank, processes that read its end would die of SIGBUS.
            fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
            let_children_open()
            if not sparse:
                self.reserve(0, self.size)
        except BaseException:
            self.close()
            raise

    @property
    def handle(self) -> ArenaHandle:
        """What to send to other processes."""
        return ArenaHandle(os.getpid(), self.descriptor, self.size)

    @property
    def held(self) -> int:
        """Bytes of memory behind the arena at this moment, by the kernel's count."""
        return os.fstat(self.descriptor).st_blocks * 512

    def reserve(self, start: int, stop: int) -> None:
        """Reserve memory for every page that holds one of bytes start <= b < stop; contents stay.

        Raises:
            UserError: the memory is not available.
        """
        start, stop = start // PAGE * PAGE, min(self.size, -(-stop // PAGE) * PAGE)
        try:
            for at in range(start, stop, FALLOCATE_STEP):
                os.posix_fallocate(self.descriptor, at, min(FALLOCATE_STEP, stop - at))
        except OSError as error:
            raise UserError(
                f"no memory for {self.name}: {error.strerror} at {at >> 20} of "
                f"{self.size >> 20} MiB; lower replay.capacity or policy.width"
            ) from None

    def punch(self, start: int, stop: int) -> None:
        """Return every page that lies wholly in bytes start <= b < stop to the system.

        Raises:
            OSError: the kernel refuses.
        """
        start, stop = -(-start // PAGE) * PAGE, stop // PAGE * PAGE
        if start >= stop:
            return
        mode = _FALLOC_FL_PUNCH_HOLE | _FALLOC_FL_KEEP_SIZE
        if _fallocate(self.descriptor, mode, start, stop - start):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), self.name)

    def close(self) -> None:
        """Give up the descriptor; mappings elsewhere stay valid."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def let_children_open() -> None:
    """Let processes of the same user and rights open `/proc/<this process>/fd`.

    A program that is given capabilities by its file, or that has changed its user, is not
    "dumpable": the kernel then keeps even its own children out.
    """
    libc = ctypes.CDLL(None)
    if libc.prctl(_PR_GET_DUMPABLE, 0, 0, 0, 0) != 1:
        libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)


def available_memory() -> int:
    """Bytes that this process may still use, of the machine and of every control group around it.

    Cache that the kernel takes back when it likes counts as available.

    Raises:
        UserError, OSError: as `memory_levels`.
    """
    return max(0, min(level.available for level in memory_levels()))


def check_memory(needs: Mapping[str, int]) -> None:
    """Refuse a configuration whose memory, grown to its whole size, is not available.

    Args:
        needs: bytes by purpose.

    Raises:
        UserError: names the largest purpose and both figures.
    """
    total, available = sum(needs.values()), available_memory()
    if total > available:
        largest = max(needs, key=lambda name: needs[name])
        lower = "take a smaller network" if largest in OF_NETWORK else "lower replay.capacity"
        raise UserError(
            f"too little memory: {total >> 20} MiB are needed ({needs[largest] >> 20} MiB of it "
            f"for {largest}) and {available >> 20} MiB are available; {lower}"
        )


def private_memory(size: int) -> memoryview:
    """Zeroed memory of this process alone, `size` bytes or some more, aligned to 8.

    Only the pages that are used take memory.
    """
    return np.zeros(-(-size // 8), np.int64).view(np.uint8).data
