"""A small cell of shared memory that holds one JSON document, written by one process.

Why it is correct. The cell has two halves. The writer fills the half that is not current, with a
length, a sequence number and a CRC32, and only then sets the 8-byte `current` word, which the
hardware writes in one piece (through numpy: `struct.pack_into` would zero it first). A writer
killed at any instant leaves the current half whole. A reader copies the current half and checks
its CRC; should the writer lap it twice during the copy, the CRC does not match, and the reader
looks again or keeps what it had. Between `current` and a half stands a fence, on both sides
(`ordering.py`). Nobody waits for anybody.
"""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any

import numpy as np

from rtagent.memory import ordering

READ_ATTEMPTS = 3

_CURRENT_BYTES = 8
_HEAD = struct.Struct("<qII")


class TooLong(ValueError):
    """A document does not fit into its cell."""


class JsonCell:
    """One JSON document in shared memory.

    Args:
        buffer: at least `JsonCell.size(capacity)` writable bytes, aligned to 8.
        capacity: longest document, bytes.
    """

    def __init__(self, buffer: memoryview, capacity: int) -> None:
        self._buffer = buffer
        self._current = np.frombuffer(buffer, "<i8", 1)
        self._capacity = capacity
        self._half = _HEAD.size + capacity
        self._sequence = -1
        self._value: dict[str, Any] = {}

    @staticmethod
    def size(capacity: int) -> int:
        """Bytes that a cell for documents of `capacity` bytes occupies."""
        return _CURRENT_BYTES + 2 * (_HEAD.size + capacity)

    def write(self, value: dict[str, Any]) -> None:
        """Replace the document. Only the cell's one writer may call this.

        Raises:
            TooLong: it does not fit; the cell keeps the document that it has.
        """
        text = json.dumps(value).encode()
        if len(text) > self._capacity:
            raise TooLong(f"document of {len(text)} bytes in a cell of {self._capacity}")
        sequence = self.sequence + 1
        at = _CURRENT_BYTES + (sequence % 2) * self._half
        body = at + _HEAD.size
        self._buffer[body : body + len(text)] = text
        _HEAD.pack_into(self._buffer, at, sequence, len(text), _crc(sequence, text))
        ordering.fence()
        self._current[0] = sequence

    @property
    def sequence(self) -> int:
        """Number of the newest document: cheap to compare before a `read`."""
        return int(self._current[0])

    def read(self) -> dict[str, Any]:
        """The newest whole document; the previous one if the newest is torn; {} if none.

        The same object as before unless there is a newer document.
        """
        for _ in range(READ_ATTEMPTS):
            current = self.sequence
            if current == self._sequence:
                break
            ordering.fence()
            text = self._text(current)
            if text is not None:
                self._value, self._sequence = json.loads(text), current
                break
        return self._value

    def _text(self, current: int) -> bytes | None:
        """The document with this number; none if its half does not hold it whole."""
        at = _CURRENT_BYTES + (current % 2) * self._half
        sequence, length, crc = _HEAD.unpack_from(self._buffer, at)
        if sequence != current or not 0 < length <= self._capacity:
            return None
        text = bytes(self._buffer[at + _HEAD.size : at + _HEAD.size + length])
        return text if _crc(sequence, text) == crc else None


def _crc(sequence: int, text: bytes) -> int:
    return zlib.crc32(text, sequence & 0xFFFFFFFF)
