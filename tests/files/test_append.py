"""Files that grow by whole pieces."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from rtagent.files import append
from rtagent.files.append import append_whole


def test_a_full_disk_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "folder" / "file"
    append_whole(path, b"before")

    class HalfFull:
        """Takes three bytes, then there is no space left."""

        def __init__(self, *arguments: Any, **options: Any) -> None:
            self._file = os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND), "ab", buffering=0)

        def __enter__(self) -> HalfFull:
            return self

        def __exit__(self, *details: object) -> None:
            self._file.close()

        def fileno(self) -> int:
            return self._file.fileno()

        def write(self, data: memoryview) -> int:
            if len(data) <= 3:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return self._file.write(data[:3]) or 0

    monkeypatch.setattr(append, "open", HalfFull, raising=False)
    with pytest.raises(OSError, match="No space left"):
        append_whole(path, b"after")
    assert path.read_bytes() == b"before"
