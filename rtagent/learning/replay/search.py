"""Finds transitions by the frames of their states, which grow with the serial numbers.

The compiled version is an interpolation search: decisions come at an even rate, so the position of
a frame can be guessed well. NumPy's is a binary search, in half a dozen calls for a batch.
"""

from __future__ import annotations

import ctypes

import numpy as np

from rtagent.learning.replay.look_up import Ints
from rtagent.memory.compiled import compiled


class _Job(ctypes.Structure):
    """`struct job` of `search.c`."""

    _fields_ = (
        ("column", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("capacity", "first", "end", "count")),
        *((name, ctypes.c_void_p) for name in ("frames", "serials")),
    )


class Search:
    """Finds transitions in a column of frames, a batch at a time.

    Args:
        column: (capacity,) frames; that of serial number s is in slot s mod capacity.
    """

    def __init__(self, column: Ints) -> None:
        # The job points to its memory, so it is kept.
        self._column = column
        self._function = compiled("rtagent_search")
        self._job = _Job(column=column.ctypes.data, capacity=len(column))
        self._address = ctypes.addressof(self._job)
        self._make_room(64)

    def find(self, first: int, end: int, frames: Ints) -> tuple[Ints, bool]:
        """Find the transitions of some frames.

        Args:
            first: oldest serial number in the column.
            end: one past the newest; greater than `first`.
            frames: (n,).

        Returns:
            Their serial numbers (n,), -1 for frames that the column does not have; and whether it
            has all of them.
        """
        if self._function is None:
            serials = np.minimum(first + older_than(self._column, first, end, frames), end - 1)
            there = self._column.take(serials % len(self._column)) == frames
            return np.where(there, serials, -1), bool(there.all())
        job, count = self._job, len(frames)
        if count > len(self._frames):
            self._make_room(2 * count)
        self._frames[:count] = frames
        job.first, job.end, job.count = first, end, count
        missing = self._function(self._address)
        return self._serials[:count].copy(), not missing

    def _make_room(self, count: int) -> None:
        self._frames, self._serials = np.empty((2, count), np.int64)
        self._job.frames = self._frames.ctypes.data
        self._job.serials = self._serials.ctypes.data


def older_than(column: Ints, first: int, end: int, frames: Ints) -> Ints:
    """For each frame (n,), how many transitions first <= serial < end have an older frame."""
    start, stop = first % len(column), (end - 1) % len(column) + 1
    if start < stop:
        return np.searchsorted(column[start:stop], frames)
    # The transitions wrap around the end of the ring: two parts, each in ascending order.
    return np.searchsorted(column[start:], frames) + np.searchsorted(column[:stop], frames)
