"""Files that grow by whole pieces, and are renamed when they are full."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def append_whole(path: Path, data: bytes) -> None:
    """Append to a file, or leave it as it was.

    Args:
        path: of the file; it and its folder are made if they are missing.
        data: what to append.

    Raises:
        OSError: it cannot be appended.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "ab", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        try:
            view = memoryview(data)
            while view:
                view = view[file.write(view) :]
        except OSError:
            os.ftruncate(file.fileno(), size)
            raise


def make_room(path: Path, more: int, most_bytes: int) -> None:
    """Rename a file to `older(path)` if it has no room for more bytes.

    Args:
        path: of the file, which may be missing.
        more: bytes that will be appended.
        most_bytes: of the file and the older one together.

    Raises:
        OSError: it cannot be renamed.
    """
    with suppress(FileNotFoundError):
        if path.stat().st_size + more > most_bytes // 2:
            os.replace(path, older(path))


def older(path: Path) -> Path:
    """The name that a file gets when it is full."""
    return path.with_name(f"{path.name}.1")
