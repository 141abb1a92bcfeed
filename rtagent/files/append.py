"""Files that grow by whole pieces."""

from __future__ import annotations

import os
from pathlib import Path


def append_whole(path: Path, data: bytes) -> None:
    """Append to a file, or leave it as it was.

    Args:
        path: made if it is not there, with its folder.
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
