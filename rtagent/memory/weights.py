"""The weight buffers: learners publish, inference processes take over between two inferences.

Why it is correct. There are three flat float32 buffers and a word `current` with the number p of
the newest publication, which lies in buffer p mod 3. A publisher fills the next buffer, whose
header says -1 meanwhile, writes the header with a checksum, and sets `current` last, in one 8-byte
store. Killed at any instant, it leaves the current buffer whole. A reader copies the current
buffer and compares header and checksum after the copy; only a publisher that laps it twice during
the copy makes it try again. Fences stand behind the -1, before the store of `current`, and around
the copy of a reader (`ordering.py`). One process publishes at a time: the one whose turn it is.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rtagent.memory import ordering

BUFFERS = 3
CONTROL_BYTES = 256
READ_ATTEMPTS = 5
PIECE_VALUES = 65_536
"""Copied at a time by a `Reading`: an even number, as the checksum needs it."""

_HEADER = np.dtype(
    [("publication", "<i8"), ("version", "<i8"), ("updates", "<i8"), ("checksum", "<u8")]
)

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class WeightsInfo:
    """What a publication says about itself.

    Attributes:
        version: grows by one per publication and survives restarts of the daemon.
        updates: gradient steps behind these weights; drives exploration.
    """

    version: int
    updates: int


class WeightBuffers:
    """Three flat float32 buffers.

    Args:
        buffer: `WeightBuffers.size(parameters)` writable bytes.
        parameters: number of values.
    """

    def __init__(self, buffer: memoryview, parameters: int) -> None:
        self._current = np.frombuffer(buffer, "<i8", 1)
        self._headers = np.frombuffer(buffer, _HEADER, BUFFERS, 64)
        stride = _stride(parameters)
        self._buffers: list[Floats] = [
            np.frombuffer(buffer, np.float32, parameters, CONTROL_BYTES + index * stride)
            for index in range(BUFFERS)
        ]

    @staticmethod
    def size(parameters: int) -> int:
        """Bytes for networks with that many values."""
        return CONTROL_BYTES + BUFFERS * _stride(parameters)

    @staticmethod
    def format(buffer: memoryview) -> None:
        """Mark the buffers as empty."""
        np.frombuffer(buffer, "<i8", 1)[0] = -1
        np.frombuffer(buffer, _HEADER, BUFFERS, 64)["publication"] = -1

    @property
    def publication(self) -> int:
        """Number of the newest publication, -1 if there is none. Cheap to compare."""
        return int(self._current[0])

    def publish(self, values: Floats, info: WeightsInfo) -> None:
        """Publish new weights. Only the learner whose turn it is."""
        publication = self.publication + 1
        index = publication % BUFFERS
        header = self._headers[index : index + 1]
        header["publication"] = -1
        ordering.fence()
        np.copyto(self._buffers[index], values)
        header["version"] = info.version
        header["updates"] = info.updates
        header["checksum"] = checksum(
            self._buffers[index], publication, info.version, info.updates
        )
        header["publication"] = publication
        ordering.fence()
        self._current[0] = publication

    def info(self) -> WeightsInfo | None:
        """Of the newest publication; none if there is none or it was lapped just now."""
        publication = self.publication
        ordering.fence()
        header = self._headers[publication % BUFFERS].copy()
        ordering.fence()
        if publication < 0 or self._headers["publication"][publication % BUFFERS] != publication:
            return None
        return WeightsInfo(int(header["version"]), int(header["updates"]))

    def begin(self, out: Floats) -> Reading | None:
        """Begin to copy the newest weights, a piece at a time.

        Args:
            out: (parameters,), filled; undefined before the copy is complete.

        Returns:
            The copy; None if nothing is published, or the publication was lapped just now.
        """
        publication = self.publication
        if publication < 0:
            return None
        ordering.fence()
        index = publication % BUFFERS
        reading = Reading(self._headers[index : index + 1], self._buffers[index], out, publication)
        return None if reading.lapped else reading

    def read(self, out: Floats) -> WeightsInfo | None:
        """Copy the newest weights.

        Args:
            out: (parameters,), filled; undefined if None is returned.

        Returns:
            What was copied; None if nothing is published or each attempt was lapped.
        """
        for _ in range(READ_ATTEMPTS):
            publication = self.publication
            if publication < 0:
                return None
            index = publication % BUFFERS
            ordering.fence()
            header = self._headers[index].copy()
            np.copyto(out, self._buffers[index])
            ordering.fence()
            info = WeightsInfo(int(header["version"]), int(header["updates"]))
            if self._headers["publication"][index] == publication and (
                checksum(out, publication, info.version, info.updates) == header["checksum"]
            ):
                return info
        return None


class Reading:
    """A copy of one publication in the making.

    Made by `WeightBuffers.begin`. A publisher that laps it is noticed at the next piece, and a torn
    copy at the last.

    Args:
        header: of the buffer, as an array of one.
        source: the buffer.
        out: as long.
        publication: that should stand there.

    Attributes:
        publication: its number.
        info: what it says about itself.
        complete: whether all of it was copied, and is whole.
    """

    def __init__(self, header: npt.NDArray[Any], source: Floats, out: Floats, publication: int):
        self._header, self._source, self._out = header, source, out
        self.publication = publication
        self.info = WeightsInfo(int(header["version"][0]), int(header["updates"][0]))
        self.complete = False
        self._wanted = int(header["checksum"][0])
        self._sum = checksum(out[:0], publication, self.info.version, self.info.updates)
        self._at = 0

    @property
    def lapped(self) -> bool:
        """Whether the buffer had been given to another publication, at what was read before."""
        ordering.fence()
        return int(self._header["publication"][0]) != self.publication

    def copy(self) -> bool:
        """Copy the next piece; False: the copy is torn, and of no use."""
        piece = slice(self._at, self._at + PIECE_VALUES)
        np.copyto(self._out[piece], self._source[piece])
        if self.lapped:
            return False
        self._sum += checksum(self._out[piece])
        self._at = piece.stop
        if self._at < len(self._out):
            return True
        self.complete = self._sum % 2**64 == self._wanted
        return self.complete


def checksum(values: Floats, *header: int) -> int:
    """Finds a torn copy, or one with another's header, at memory speed.

    Args:
        values: (n,), without gaps; their bits are added modulo 2**64, two values at a time.
        header: numbers that go with them; their CRC32 is added in the upper half.
    """
    paired = len(values) // 2 * 2
    total = int(values[:paired].view(np.uint64).sum())
    total += int(values[paired:].view(np.uint32).sum())
    return (total + (zlib.crc32(np.array(header, np.int64).tobytes()) << 32)) % 2**64


def _stride(parameters: int) -> int:
    return -(-parameters * 4 // 64) * 64
