"""What the kernel says that a process does."""

from __future__ import annotations

import contextlib
from pathlib import Path


def is_stopped(pid: int | None) -> bool:
    """Whether a process has been stopped by a signal."""
    return _state(Path(f"/proc/{pid}/stat")) in ("T", "t")


def is_computing(pid: int | None) -> bool:
    """Whether a thread of a process runs, waits for a processor, or for its memory or disk."""
    threads = Path(f"/proc/{pid}/task").glob("*/stat")
    # It may end while they are listed.
    with contextlib.suppress(OSError):
        return any(_state(thread) in ("R", "D") for thread in threads)
    return False


def descendants(pid: int) -> list[int]:
    """The processes that a process has started, and those that they have started in turn."""
    found = [pid]
    for each in found:
        # It may end while its threads are listed.
        with contextlib.suppress(OSError):
            for file in Path(f"/proc/{each}/task").glob("*/children"):
                found += map(int, file.read_text().split())
    return found[1:]


def fields_of(stat: Path) -> list[str]:
    """A process's or a thread's fields after its name: state, parent, group, session, and so on.

    Args:
        stat: its file of that name in `/proc`; see `man 5 proc`.

    Returns:
        The fields; [] if it is gone.
    """
    try:
        # The name is any bytes.
        return stat.read_bytes().rpartition(b")")[2].decode().split()
    except OSError:
        return []


def _state(stat: Path) -> str | None:
    return next(iter(fields_of(stat)), None)
