"""Flat float32 arrays that are replaced together, in a `DoubleBuffer`.

Millions of values are filled in place and read by copying, at once or a piece at a time. Beside
the marks of the double buffer, a header says what the values are, and a checksum of it and of the
first array finds what is damaged.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Generic

import numpy as np
import numpy.typing as npt

from rtagent.memory.double_buffer import COPIES, DoubleBuffer
from rtagent.memory.records import Layout, Record, whole_cache_lines

CONTROL_BYTES = 256
PIECE_VALUES = 65_536
"""Values that a `Reading` copies at a time: an even number, as the checksum needs it."""

_HEADERS_AT = 64

Floats = npt.NDArray[np.float32]
Copying = Callable[[Floats], int]
"""Copies an array from shared memory or into it; returns the `checksum` of the copy's values."""


class ArrayDoubleBuffer(DoubleBuffer, Generic[Record]):
    """Arrays of (values,) float32 and their header.

    Args:
        control: `CONTROL_BYTES` bytes, aligned to 8; zeroed, nothing is published.
        payload: `ArrayDoubleBuffer.payload_bytes(...)` bytes.
        header: dataclass of integers.
        values: elements of each array.
        arrays: arrays of each copy; the first is what `read` copies.
        copies: number of copies of all arrays.

    Attributes:
        payload: the memory of all arrays.
        copies: the arrays of each copy; `begin` and `current` say which copy to fill or to use.
    """

    def __init__(
        self, control: memoryview, payload: memoryview, header: type[Record], values: int,
        arrays: int = 1, copies: int = COPIES,
    ) -> None:
        super().__init__(control, copies)
        self._layout = Layout(header)
        headers_end = _HEADERS_AT + copies * self._layout.size
        self._headers = control[_HEADERS_AT:headers_end]
        self._checksums = np.frombuffer(control, "<u8", copies, headers_end)
        self.payload, stride = payload, _stride(values)
        self.copies: list[list[Floats]] = [
            [
                np.frombuffer(payload, np.float32, values, (copy * arrays + each) * stride)
                for each in range(arrays)
            ]
            for copy in range(copies)
        ]

    @staticmethod
    def payload_bytes(values: int, arrays: int = 1, copies: int = COPIES) -> int:
        """Bytes of all copies."""
        return copies * arrays * _stride(values)

    @property
    def header(self) -> Record:
        """The header of the newest publication. Only for the writer."""
        return self._header(self.current)

    def commit(self, header: Record, total: int | None = None) -> None:
        """Publish the copy that `begin` gave. Only the writer.

        Args:
            header: what it says about itself.
            total: the `checksum` of its first array, if the writer has it.
        """
        copy = (self.number + 1) % len(self.copies)
        if total is None:
            total = checksum(self.copies[copy][0])
        self._layout.store(self._headers, copy * self._layout.size, header)
        self._checksums[copy] = self._with_header(total, header)
        self.finish()

    def info(self) -> Record | None:
        """Header of the newest publication; None if there is none, or each attempt was lapped."""
        return self.read_by(self._header)

    def read(self, out: Floats) -> Record | None:
        """Copy the first array of the newest publication.

        Args:
            out: (values,), filled; undefined if None is returned.

        Returns:
            Its header; None if nothing is published or each attempt was lapped.
        """
        return self.read_with(into(out))

    def read_with(self, copying: Copying) -> Record | None:
        """Do what `read` does, with a function of your own that copies."""

        def copied(copy: int) -> Record | None:
            header, wanted = self._header(copy), self._checksums[copy]
            total = copying(self.copies[copy][0])
            return header if self._with_header(total, header) == wanted else None

        return self.read_by(copied)

    def begin_reading(self, out: Floats) -> Reading[Record] | None:
        """Begin to copy the first array of the newest publication, a piece at a time.

        Args:
            out: (values,), filled; undefined before the copy is complete.

        Returns:
            The copy; None if nothing is published, or the publication was lapped just now.
        """
        number = self.acquire()
        if not number:
            return None
        copy = number % len(self.copies)
        header, wanted = self._header(copy), int(self._checksums[copy])
        if self.lapped(number):
            return None
        rest = wanted - self._with_header(0, header)
        return Reading(self, number, header, rest, self.copies[copy][0], out)

    def _header(self, copy: int) -> Record:
        return self._layout.load(self._headers, copy * self._layout.size)

    def _with_header(self, total: int, header: Record) -> int:
        """The checksum of a header together with the array whose checksum is `total`."""
        numbers = np.array(self._layout.values(header), np.int64)
        return (total + (zlib.crc32(numbers.tobytes()) << 32)) % 2**64


class Reading(Generic[Record]):
    """A copy of one publication in the making.

    Made by `ArrayDoubleBuffer.begin_reading`. It notices at the next piece that a publisher has
    lapped it, and damage at the last piece.

    Attributes:
        number: of the publication.
        header: what it says about itself.
        complete: whether all of it was copied, and is whole.
    """

    def __init__(
        self, buffer: DoubleBuffer, number: int, header: Record, rest: int, source: Floats,
        out: Floats,
    ) -> None:
        self._buffer, self._source, self._out = buffer, source, out
        self.number, self.header = number, header
        self.complete = False
        self._rest, self._at = rest, 0

    def copy(self) -> bool:
        """Copy the next piece; False if the copy is torn, and of no use."""
        piece = slice(self._at, self._at + PIECE_VALUES)
        np.copyto(self._out[piece], self._source[piece])
        if self._buffer.lapped(self.number):
            return False
        self._rest -= checksum(self._out[piece])
        self._at = piece.stop
        if self._at < len(self._out):
            return True
        self.complete = self._rest % 2**64 == 0
        return self.complete


def into(out: Floats) -> Copying:
    """A copy into an array (values,) of the host."""

    def copying(values: Floats) -> int:
        np.copyto(out, values)
        return checksum(out)

    return copying


def checksum(values: Floats) -> int:
    """A checksum at memory speed, which finds a torn copy.

    Args:
        values: (n,), without gaps; their bits are added modulo 2**64, two values at a time.
    """
    paired = len(values) // 2 * 2
    total = int(values[:paired].view(np.uint64).sum())
    return (total + int(values[paired:].view(np.uint32).sum())) % 2**64


def _stride(values: int) -> int:
    return whole_cache_lines(4 * values)
