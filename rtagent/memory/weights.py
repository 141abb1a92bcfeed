"""The weight buffers: learners publish, inference processes take over between two inferences.

Why it is correct. There are three flat float32 buffers and a word `current` with the number p of
the newest publication, which lies in buffer p mod 3. A publisher fills the next buffer, whose
header says -1 meanwhile, writes the header with a checksum, and sets `current` last, in one 8-byte
store. Killed at any instant, it leaves the current buffer whole. A reader copies the current
buffer and compares header and checksum after the copy; only a publisher that laps it twice during
the copy makes it try again. One process publishes at a time: the one whose turn it is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

BUFFERS = 3
CONTROL_BYTES = 256
READ_ATTEMPTS = 5

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
        np.copyto(self._buffers[index], values)
        header["version"] = info.version
        header["updates"] = info.updates
        header["checksum"] = checksum(self._buffers[index])
        header["publication"] = publication
        self._current[0] = publication

    def info(self) -> WeightsInfo | None:
        """Of the newest publication; none if there is none or it was lapped just now."""
        publication = self.publication
        header = self._headers[publication % BUFFERS].copy()
        if publication < 0 or header["publication"] != publication:
            return None
        return WeightsInfo(int(header["version"]), int(header["updates"]))

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
            before = self._headers[index].copy()
            np.copyto(out, self._buffers[index])
            after = self._headers[index].copy()
            if before["publication"] == after["publication"] == publication and (
                checksum(out) == after["checksum"]
            ):
                return WeightsInfo(int(after["version"]), int(after["updates"]))
        return None


def checksum(values: Floats) -> int:
    """Sum of the values' bits modulo 2**64: finds a torn copy at memory speed."""
    return int(values.view(np.uint32).sum(dtype=np.uint64))


def _stride(parameters: int) -> int:
    return -(-parameters * 4 // 64) * 64
