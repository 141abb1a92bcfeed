"""What the kernel says of a process: what it does, and which processes it has started."""

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


def children(pid: int) -> set[int]:
    """The processes that a process has started, ended or not; empty if it is gone itself."""
    found: set[int] = set()
    # The process, or one of its threads, may end at any line.
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found.update(map(int, (thread / "children").read_text().split()))
    return found


def descendants(pid: int) -> set[int]:
    """The processes that a process has started, and those that they have started in turn."""
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        new = children(waiting.pop()) - found
        found |= new
        waiting += new
    return found


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
