"""Reads files that others may have put there; a pipe, a device or a huge file is an error at once.

Why it is correct. The open does not block, whatever the path names; what was opened, not what the
path names a moment later, is then looked at and read.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_regular(path: Path, most: int | None = None) -> BinaryIO:
    """Open a file for reading.

    Args:
        path: the file, or a link to it.
        most: bytes that it may have. If None, any number.

    Raises:
        OSError: it cannot be opened, is no regular file or too large; `strerror` says which.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        about = os.fstat(descriptor)
        if stat.S_ISDIR(about.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(about.st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        if most is not None and about.st_size > most:
            raise OSError(errno.EFBIG, f"{about.st_size} bytes, and {most} are the most")
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(path: Path, most: int) -> bytes:
    """All of a file.

    Args:
        path: the file.
        most: bytes that it may have.

    Raises:
        OSError: it cannot be read, is no regular file or too large; `strerror` says which.
    """
    with open_regular(path, most) as file:
        # A file that grows meanwhile is read up to the limit.
        return file.read(most)
