"""Removes the oldest of several files or folders, so that they do not fill the disk."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

MIB = 1 << 20
_RUN = re.compile(r"[0-9a-f]{8}")
"""Name of a run's folder; a folder that was renamed belongs to the user, and stays."""


def prune(paths: Sequence[Path], number: int, most_bytes: int) -> list[Path]:
    """Remove the oldest of several files or folders, never the newest.

    Args:
        paths: newest first.
        number: most that remain.
        most_bytes: most bytes of the remaining ones, unless the newest alone has more.

    Returns:
        The removed paths. What cannot be removed is left alone.
    """
    removed, total = [], 0
    for at, path in enumerate(paths):
        total += bytes_in(path)
        if at and (at >= number or total > most_bytes):
            with suppress(OSError):
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink(missing_ok=True)
                removed.append(path)
    return removed


def bytes_in(path: Path) -> int:
    """Bytes of a file, or of the files in a folder; no link is followed."""
    # A process that writes there may remove or rename a file at any time.
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            return sum(map(bytes_in, path.iterdir()))
        return path.lstat().st_size
    return 0


def newest_first(folder: Path) -> list[Path]:
    """Files and folders by the time of their last change; none if the folder is missing."""
    found = []
    for path in folder.glob("*"):
        with suppress(FileNotFoundError):
            found.append((path.lstat().st_mtime_ns, path))
    return [path for _, path in sorted(found, reverse=True)]


def run_folders(folder: Path) -> list[Path]:
    """The folders of runs, newest first.

    Args:
        folder: `runs` of a state directory.
    """
    return [
        path for path in newest_first(folder)
        if _RUN.fullmatch(path.name) and path.is_dir() and not path.is_symlink()
    ]
