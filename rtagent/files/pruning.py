"""Removes the oldest of several files or folders, so that they do not fill the disk."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from rtagent.files.regular_file import read_regular

MIB = 1 << 20
RUN_RECORD = "run.json"
"""File in the folder of a run, with its number."""
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


def run_folders(folder: Path) -> list[Path]:
    """The folders of runs, newest first.

    By their numbers: a machine whose clock has no battery may begin with the same time again and
    again. Runs without a number are older, and go by time.

    Args:
        folder: `runs` of a state directory.
    """
    runs = []
    for path in folder.glob("*"):
        with suppress(FileNotFoundError):
            if _RUN.fullmatch(path.name) and path.is_dir() and not path.is_symlink():
                runs.append((run_number(path), path.lstat().st_mtime_ns, path))
    return [path for *_, path in sorted(runs, reverse=True)]


def next_number(folder: Path) -> int:
    """The number of the next run whose folder is made in a folder."""
    return 1 + max(map(run_number, run_folders(folder)), default=0)


def run_number(folder: Path) -> int:
    """The number of a run, which grows from run to run; 0 if none can be read."""
    with suppress(OSError, ValueError, RecursionError):
        record = json.loads(read_regular(folder / RUN_RECORD, 8 * MIB))
        number = record.get("number") if isinstance(record, dict) else None
        return number if isinstance(number, int) else 0
    return 0
