"""Writes files that appear whole or not at all.

Why it is correct. A file is written under a temporary name in the same folder, flushed to the disk
and renamed; a writer that is killed at any instant leaves what had the name before, and at most a
draft that nobody reads. A writer holds a lock on its draft (`flock`), which the kernel frees when
it dies: so the next writer knows the drafts of the dead, and removes them. It may take one that is
not locked yet for such a draft, whose writer notices and makes another.
"""

from __future__ import annotations

import errno
import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

FLUSH_BYTES = 16 << 20
"""Bytes after which a file is flushed while it grows. If all of it were flushed at the end, its
writer would be silent for minutes on a slow disk, and count as hung."""


@contextmanager
def atomic_write(path: Path, draft_prefix: str) -> Iterator[Callable[[bytes | memoryview], None]]:
    """Gives a function that appends to a file, which appears when the block ends without an error.

    Args:
        path: in a folder that exists.
        draft_prefix: how the name of the draft begins.

    Raises:
        OSError: the file cannot be written; a file of that name stays as it was.
    """
    remove_drafts(path.parent, draft_prefix)
    descriptor, draft = _new_draft(path.parent, draft_prefix)
    try:
        with os.fdopen(descriptor, "wb", buffering=0) as file:

            waiting = 0

            def write(content: bytes | memoryview) -> None:
                nonlocal waiting
                rest = memoryview(content)
                waiting += len(rest)
                while rest:
                    rest = rest[file.write(rest) :]
                if waiting >= FLUSH_BYTES:
                    os.fdatasync(file.fileno())
                    waiting = 0

            yield write
            os.fsync(file.fileno())
            # Before the file is closed, and with it the lock free.
            os.replace(draft, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(draft)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    except OSError as error:
        # File systems that cannot flush a folder have renamed all the same.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(folder)


def _new_draft(folder: Path, draft_prefix: str) -> tuple[int, str]:
    """Descriptor and path of a new draft, which no other writer removes."""
    while True:
        descriptor, draft = tempfile.mkstemp(prefix=draft_prefix, dir=folder)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.exists(draft):
                return descriptor, draft
        except BlockingIOError:
            pass
        except OSError:
            # On a file system without locks nobody removes drafts.
            return descriptor, draft
        os.close(descriptor)


def remove_drafts(folder: Path, draft_prefix: str) -> None:
    """Remove the drafts that killed writers have left in a folder."""
    for draft in folder.glob(f"{draft_prefix}*"):
        with suppress(OSError):
            descriptor = os.open(draft, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                draft.unlink()
            finally:
                os.close(descriptor)
