"""The folder of a learner's checkpoints: told to the nodes on which it may run, and locked.

`rtagent learner` is told the folder, but a daemon that waits for a node with room for a learner may
start the learner there first. So the folder is in the environment of the node, too.

The lock lets one learner alone write there. Two learners that write into one folder would remove
each other's checkpoints as the oldest, and neither would find its own when it is started again. It
is a lock of the kernel (`flock`), like that of a daemon's state directory: it is released when its
holder ends, however that dies.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from rtagent.clock import Clock
from rtagent.errors import UserError

LOCK = "learner.lock"
VARIABLE = "RTAGENT_LEARNER_FOLDER"
"""`NAME=FOLDER` in the environment of a node: for learners of that name, whoever starts them."""
WAIT_S, LOOK_S = 3.0, 0.1
"""How long a learner waits for the lock, since the learner that it replaces may just be ending; and
time between two attempts."""


def tell_nodes(name: str, folder: Path, environ: MutableMapping[str, str]) -> None:
    """Name a learner's folder to the nodes that are started with this environment from now on."""
    environ[VARIABLE] = f"{name}={folder}"


def named_here(name: str | None, environ: Mapping[str, str]) -> str | None:
    """The folder of a learner with this name, by the environment of its node; else None."""
    whose, _, folder = environ.get(VARIABLE, "").partition("=")
    return folder if folder and whose == name else None


def hold(folder: Path, clock: Clock) -> int | None:
    """Lock a folder until this process ends.

    Args:
        folder: made if it does not exist.

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
