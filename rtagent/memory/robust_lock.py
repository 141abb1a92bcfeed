"""RobustLock: a lock between processes that the death of its holder releases.

Why it is correct. It is a POSIX record lock on a memfd of its own. The kernel releases it when its
holder dies, however it dies, so no process is ever stopped by a dead one. Such locks belong to the
process and vanish when the process closes *any* descriptor of the file: that is why this file is
opened once per process, holds nothing else, and is never mapped. The environment process never
takes it. Letting go is a release and taking an acquire, on every processor: both calls pass through
one lock of the kernel's own, and so does the death of a holder. So the next holder sees all that
the one before had stored.
"""

from __future__ import annotations

import fcntl
import os

from rtagent.memory.arena import ArenaHandle


class RobustLock:
    """A lock between processes that its holder's death releases.

    Args:
        handle: of an arena made for this lock alone.
    """

    def __init__(self, handle: ArenaHandle) -> None:
        path = f"/proc/{handle.owner_pid}/fd/{handle.descriptor}"
        self._descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def __enter__(self) -> RobustLock:
        fcntl.lockf(self._descriptor, fcntl.LOCK_EX)
        return self

    def __exit__(self, *error: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Release the lock."""
        fcntl.lockf(self._descriptor, fcntl.LOCK_UN)

    def try_enter(self) -> bool:
        """Take the lock if it is free at this moment; whether it was. Never waits.

        A holder that was stopped (SIGSTOP) keeps it until the supervisor kills that process.
        """
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            return False
        return True

    def close(self) -> None:
        """Give up the lock's descriptor."""
        os.close(self._descriptor)


class NoLock:
    """Stands in for a `RobustLock` where no other process can reach what it guards."""

    def try_enter(self) -> bool:
        """It is always free."""
        return True

    def leave(self) -> None:
        """Nothing was taken."""
