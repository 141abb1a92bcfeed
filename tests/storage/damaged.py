"""Files of which one byte is damaged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def each_byte_damaged(path: Path, bits: int = 0x10) -> Iterator[int]:
    """Flip bits of one byte of a file after the other; where that byte is."""
    whole = path.read_bytes()
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= bits
        path.write_bytes(damaged)
        yield at
