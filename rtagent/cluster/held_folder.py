"""The folder of a learner's checkpoints, held by one learner at a time.

Two learners that write into one folder would remove each other's checkpoints as the oldest, and
neither would find its own when it is started again. The lock is the kernel's (`flock`), as that of
a daemon's state directory is: it is free again when its holder is gone, however it died.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from rtagent.clock import Clock
from rtagent.errors import UserError

LOCK = "learner.lock"
WAIT_S, LOOK_S = 3.0, 0.1
"""How long a learner waits for one that is just ending, as the one that it replaces; time between
two looks."""


def hold(folder: Path, clock: Clock) -> int | None:
    """Hold a folder until this process ends.

    Args:
        folder: made if it is not there.
        clock: time.

    Returns:
        A descriptor; to close it is to let go. None: there is nothing to hold, for the folder
        cannot be written, as the first checkpoint will tell, or its file system has no locks.

    Raises:
        UserError: another learner holds it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(folder / LOCK, flags, 0o600)
    except OSError:
        return None
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
