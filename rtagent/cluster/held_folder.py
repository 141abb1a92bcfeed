"""Locks the folder of a learner's checkpoints, so that one learner alone writes there.

Two learners that write into one folder would remove each other's checkpoints as the oldest, and
neither would find its own when it is started again. The lock is one of the kernel (`flock`), like
the lock of a daemon's state directory: it is released when its holder ends, however that dies.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from rtagent.clock import Clock
from rtagent.errors import UserError

LOCK = "learner.lock"
WAIT_S, LOOK_S = 3.0, 0.1
"""How long a learner waits for the lock, since the learner that it replaces may just be ending; and
time between two attempts."""


def hold(folder: Path, clock: Clock) -> int | None:
    """Lock a folder until this process ends.

    Args:
        folder: made if it does not exist.
        clock: time.

    Returns:
        A descriptor; closing it releases the lock. None if its file system has no locks.

    Raises:
        OSError: the folder cannot be written.
        UserError: another learner holds the lock.
    """
    folder.mkdir(parents=True, exist_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(folder / LOCK, flags, 0o600)
    end = clock.now() + WAIT_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except BlockingIOError:
            if clock.now() >= end:
                os.close(descriptor)
                raise UserError(
                    f"another learner writes its checkpoints into {folder}: end that one, or "
                    "choose another folder with --checkpoint-dir"
                ) from None
        except OSError:
            os.close(descriptor)
            return None
        clock.sleep_until(clock.now() + LOOK_S)
