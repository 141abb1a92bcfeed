"""Anonymous shared memory that cannot leak.

Why it is correct. An arena is a `memfd`: it has no name, so when the last process that maps it is
gone, however it died, the kernel frees it. The supervisor holds the descriptor; every other
process opens `/proc/<supervisor>/fd/<n>` and keeps the mapping. Opening by that path makes a new
open file description, so no lock or offset is shared by accident, and no resource tracker takes
part. Memory that the hot path writes is reserved by `posix_fallocate` beforehand: a lack of
memory is then an error at that call, in the supervisor, and never a SIGBUS in a worker. `punch`
takes pages back from every process that maps them, locked or not; what was there reads as zero, and
a page that is read or written again is there again. Large arenas are mapped at addresses where the
kernel can put huge pages (`join`).
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rtagent.errors import UserError

PAGE = mmap.PAGESIZE
FALLOCATE_STEP = 8 << 20
"""Bytes reserved at a time: about 2 ms of work."""

_HUGE_PAGE_FILE = Path("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size")
HUGE_PAGE = int(_HUGE_PAGE_FILE.read_text()) if _HUGE_PAGE_FILE.exists() else 2 << 20
"""Bytes."""

_MADV_COLLAPSE = 25
_MAP_FIXED = 0x10
_MAP_NORESERVE = 0x4000
_FALLOC_FL_KEEP_SIZE = 1
_FALLOC_FL_PUNCH_HOLE = 2
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64,
)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_fallocate = _libc.fallocate
_fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)


@dataclass(frozen=True)
class ArenaHandle:
    """How another process finds an arena. Picklable."""

    name: str
    owner_pid: int
    descriptor: int
    size: int

    def map(self) -> memoryview:
        """Map the arena into this process, for reading and writing.

        Raises:
            FileNotFoundError: the owner is gone.
        """
        descriptor = os.open(f"/proc/{self.owner_pid}/fd/{self.descriptor}", os.O_RDWR)
        try:
            aligned = _map_aligned(descriptor, self.size) if self.size >= HUGE_PAGE else None
            return memoryview(mmap.mmap(descriptor, self.size)) if aligned is None else aligned
        finally:
            os.close(descriptor)


class Arena:
    """A block of shared memory owned by this process.

    Args:
        name: for error messages and `/proc/<pid>/maps`.
        size: bytes; rounded up to whole pages.
        sparse: reserve nothing yet; `reserve` and `punch` do so piece by piece.

    Attributes:
        can_join: the kernel has not yet refused to join pages for good.

    Raises:
        UserError: the memory is not there.
    """

    def __init__(self, name: str, size: int, *, sparse: bool = False) -> None:
        self.size = -(-max(size, 1) // PAGE) * PAGE
        self.name = name
        self.can_join = True
        self._mapping: memoryview | None = None
        self.descriptor = os.memfd_create(f"rtagent-{name}", os.MFD_CLOEXEC)
        try:
            os.ftruncate(self.descriptor, self.size)
            if not sparse:
                self.reserve(0, self.size)
        except BaseException:
            self.close()
            raise

    @property
    def handle(self) -> ArenaHandle:
        """What to send to other processes."""
        return ArenaHandle(self.name, os.getpid(), self.descriptor, self.size)

    @property
    def held(self) -> int:
        """Bytes of memory behind the arena at this moment, by the kernel's count."""
        return os.fstat(self.descriptor).st_blocks * 512

    def reserve(self, start: int, stop: int) -> None:
        """Make every page that bytes start <= b < stop touch certain; its contents stay.

        Raises:
            UserError: the memory is not there.
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

    def join(self, start: int) -> None:
        """Have the kernel join the small pages of a huge one, all of which are there.

        It may not be able to, for the moment (other memory is scarce or scattered) or at all.

        Args:
            start: byte at which the huge page begins, a multiple of `HUGE_PAGE`.
        """
        if self._mapping is None:
            self._mapping = self.handle.map()
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._mapping)) + start
        if _libc.madvise(address, HUGE_PAGE, _MADV_COLLAPSE):
            self.can_join = ctypes.get_errno() != errno.EINVAL
            return
        # The kernel has also put it into this mapping: that would count as this process's memory.
        _libc.madvise(address, HUGE_PAGE, mmap.MADV_DONTNEED)

    def close(self) -> None:
        """Give up the descriptor; mappings elsewhere stay valid."""
        self._mapping = None
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def _map_aligned(descriptor: int, size: int) -> memoryview | None:
    """Map memory at a multiple of the huge page's size, which `mmap.mmap` cannot; none if refused.

    It takes the place of a part of an anonymous mapping, which takes no memory and, as the object
    that the view belongs to, unmaps all of it in the end.
    """
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
    try:
        room = mmap.mmap(-1, size + HUGE_PAGE, flags=flags)
    except OSError:
        return None
    address = ctypes.addressof(ctypes.c_char.from_buffer(room))
    aligned = -(-address // HUGE_PAGE) * HUGE_PAGE
    protection = mmap.PROT_READ | mmap.PROT_WRITE
    found = _libc.mmap(aligned, size, protection, mmap.MAP_SHARED | _MAP_FIXED, descriptor, 0)
    return memoryview(room)[aligned - address :][:size] if found == aligned else None


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
