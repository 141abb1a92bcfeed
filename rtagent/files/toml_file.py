"""Reads TOML files, which others may have written, in a bounded time."""

from __future__ import annotations

import tomllib
from itertools import chain
from pathlib import Path
from typing import Any

from rtagent.files.regular_file import read_regular

LARGEST = 1 << 16
MOST_DOTS = 100
"""Most dots in a line: the parser's time grows with the square of the names joined by dots."""
MOST_LEVELS = 32
"""Most levels of nested tables and arrays: readers of the values walk through them by recursion."""


def read_toml(path: Path, most: int = LARGEST) -> dict[str, Any]:
    """The tables of a file.

    Args:
        path: the file.
        most: bytes that it may have.

    Raises:
        OSError: it cannot be read, is no regular file or too large; `strerror` says which.
        ValueError: it is no TOML, or as `parse_toml` says.
    """
    # Editors on Windows begin a file with a byte-order mark.
    text = read_regular(path, most).decode("utf-8-sig")
    for number, line in enumerate(text.split("\n"), 1):
        if line.count(".") > MOST_DOTS and not line.lstrip().startswith("#"):
            raise ValueError(f"line {number}: more than {MOST_DOTS} dots in a line")
    return parse_toml(text)


def parse_toml(text: str) -> dict[str, Any]:
    """The tables of a text.

    Raises:
        ValueError: it is nested too deeply, or has a number of too many digits; if it is no TOML, a
            `tomllib.TOMLDecodeError`.
    """
    try:
        tables = tomllib.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    check_levels(tables)
    # Python reads hexadecimal numbers of any length, which then no message can show.
    repr(tables)
    return tables


def check_levels(tables: dict[str, Any]) -> None:
    """Raise a ValueError for tables that are nested too deeply to be walked through."""
    inner: list[Any] = [tables]
    for _ in range(MOST_LEVELS + 1):
        if not inner:
            return
        parts = chain.from_iterable(
            each.values() if isinstance(each, dict) else each for each in inner
        )
        inner = [each for each in parts if isinstance(each, dict | list)]
    raise ValueError(f"nested too deeply: {MOST_LEVELS} levels are the most")
