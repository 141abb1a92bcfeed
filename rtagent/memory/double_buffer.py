"""`DoubleBuffer`: a record that one process replaces while others read it.

Why it is correct. The record lies in two copies, or more. `number` is that of the newest record, 0
if there is none; record n lies in copy n mod copies, and beside each copy stands its mark. To
replace the record, the writer

1. `begin`: sets the mark of the next copy to -1, which says that its contents are going; fence;
2. fills that copy, in place, in any way and for as long as it likes;
3. `finish`: sets the mark to n; fence; sets `number` to n.

Killed at any instant, it leaves `number` and the copy that it names as they were, and its successor
begins with step 1. A reader loads `number`; fence (`acquire`); copies; fence; and looks whether the
mark is still n (`lapped`). If it is, nothing that was copied is older than n, by the first fence
and that of step 3, nor newer, by the second one and that of step 1: the copy is record n, whole.
If it is not, the writer has come round during the copy, and the reader tries again, a bounded
number of times. Nobody waits for anybody.

Why these fences are enough on every processor: `ordering.py`. `number` and marks are aligned 8-byte
words. The buffer knows nothing of what a record is, so this holds for every kind. There is one
writer at a time; where that is not one process for ever, a `RobustLock` or a turn says who.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable
from copy import copy
from typing import Any, Generic, TypeVar

from rtagent.memory import ordering
from rtagent.memory.records import WORD, Layout, Record

READ_ATTEMPTS = 8
COPIES = 2

_GOING = -1

Found = TypeVar("Found")


class DoubleBuffer:
    """Says which copy of a record is current.

    Args:
        buffer: `DoubleBuffer.words(copies)` bytes, aligned to 8; zeroed, there is no record.
        copies: at least two; with more, the writer takes longer to come round.
    """

    def __init__(self, buffer: memoryview, copies: int = COPIES) -> None:
        # An item store of a memoryview is one 8-byte store; `struct.pack_into` would zero it first.
        self._number = buffer[:WORD].cast("q")
        self._marks = buffer[WORD : self.words(copies)].cast("q")
        self._copies = copies

    @staticmethod
    def words(copies: int = COPIES) -> int:
        """Bytes of the words; the copies themselves lie where their user wants them."""
        return WORD * (1 + copies)

    @property
    def number(self) -> int:
        """Number of the newest record, 0 if there is none. Cheap to compare before a read."""
        return self._number[0]

    @property
    def current(self) -> int:
        """The index of the newest record's copy: for the writer, which alone can rely on it."""
        return self._number[0] % self._copies

    def begin(self) -> int:
        """The index of the copy to be filled now; then `finish`. Only the writer."""
        copy = (self._number[0] + 1) % self._copies
        self._marks[copy] = _GOING
        ordering.fence()
        return copy

    def finish(self) -> None:
        """Make the copy that `begin` gave the current one. Only the writer."""
        number = self._number[0] + 1
        self._marks[number % self._copies] = number
        ordering.fence()
        self._number[0] = number

    def acquire(self) -> int:
        """`number`; what is loaded after this is at least as new."""
        number = self._number[0]
        ordering.fence()
        return number

    def lapped(self, number: int) -> bool:
        """Whether what was loaded before this may be newer than record `number`."""
        ordering.fence()
        return self._marks[number % self._copies] != number

    def read_by(self, copied: Callable[[int], Found | None]) -> Found | None:
        """Read the newest record.

        Args:
            copied: given the index of a copy, returns what lies in it; None if that is not whole by
                its own account, a checksum, say.

        Returns:
            What `copied` has returned of one record; None if there is no record, or if no attempt
            succeeded.
        """
        for _ in range(READ_ATTEMPTS):
            number = self.acquire()
            if not number:
                return None
            found = copied(number % self._copies)
            if found is not None and not self.lapped(number):
                return found
        return None


class RecordDoubleBuffer(DoubleBuffer, Generic[Record]):
    """A dataclass of integers and floats in a double buffer.

    Args:
        buffer: `RecordDoubleBuffer.size(kind)` bytes, aligned to 8; zeroed, there is no record.
        kind: the dataclass; a reader has an instance made without arguments while there is no
            record.
    """

    def __init__(self, buffer: memoryview, kind: type[Record]) -> None:
        super().__init__(buffer)
        self._layout, self._last = Layout(kind), kind()
        self._records = buffer[self.words() : self.size(kind)]

    @staticmethod
    def size(kind: type[Record]) -> int:
        """Bytes of everything."""
        return DoubleBuffer.words() + COPIES * Layout(kind).size

    def write(self, record: Record) -> None:
        """Replace the record. Only the writer."""
        self._layout.store(self._records, self.begin() * self._layout.size, record)
        self.finish()

    def read(self) -> Record:
        """A copy of the newest record, or of the one read before if each attempt was lapped."""
        size = self._layout.size
        found = self.read_by(lambda at: self._layout.load(self._records, at * size))
        if found is not None:
            self._last = found
        return copy(self._last)


class TooLong(ValueError):
    """A document does not fit into its buffer."""


_HEAD = struct.Struct("<II")


class JsonDoubleBuffer(DoubleBuffer):
    """A JSON document in a double buffer, with a CRC32.

    Args:
        buffer: `JsonDoubleBuffer.size(capacity)` bytes, aligned to 8; zeroed, there is no document.
        capacity: longest document, bytes.
    """

    def __init__(self, buffer: memoryview, capacity: int) -> None:
        super().__init__(buffer)
        self._documents = buffer[self.words() : self.size(capacity)]
        self._capacity = capacity
        self._seen = 0
        self._value: dict[str, Any] = {}

    @staticmethod
    def size(capacity: int) -> int:
        """Bytes for documents of `capacity` bytes."""
        return DoubleBuffer.words() + COPIES * (_HEAD.size + capacity)

    def write(self, value: dict[str, Any]) -> None:
        """Replace the document. Only the writer.

        Raises:
            TooLong: it does not fit; the buffer keeps the document that it has.
        """
        text = json.dumps(value).encode()
        if len(text) > self._capacity:
            raise TooLong(f"document of {len(text)} bytes in a buffer of {self._capacity}")
        at = self.begin() * (_HEAD.size + self._capacity)
        _HEAD.pack_into(self._documents, at, len(text), zlib.crc32(text))
        self._documents[at + _HEAD.size : at + _HEAD.size + len(text)] = text
        self.finish()

    def read(self) -> dict[str, Any]:
        """The newest whole document; the one read before if it cannot be read; {} if there is none.

        The same object as before unless a newer document was read.
        """
        number = self.number
        if number != self._seen:
            text = self.read_by(self._text)
            if text is not None:
                self._value, self._seen = json.loads(text), number
        return self._value

    def _text(self, copy: int) -> bytes | None:
        at = copy * (_HEAD.size + self._capacity)
        length, crc = _HEAD.unpack_from(self._documents, at)
        text = bytes(self._documents[at + _HEAD.size : at + _HEAD.size + length])
        return text if len(text) == length <= self._capacity and zlib.crc32(text) == crc else None
