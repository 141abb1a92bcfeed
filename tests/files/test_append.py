"""Files that grow by whole pieces."""

from __future__ import annotations

import errno
import io
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

    class HalfFull(io.FileIO):
        """Takes three bytes, then there is no space left."""

        def write(self, data: Any) -> int:
            if len(data) <= 3:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return super().write(data[:3])

    monkeypatch.setattr(append, "open", lambda file, mode, **_: HalfFull(file, mode), raising=False)
    with pytest.raises(OSError, match="No space left"):
        append_whole(path, b"after")
    assert path.read_bytes() == b"before"
