"""Transitions are found by their frames, which grow with their serial numbers.

Compiled, a guess comes first: play is even, so a frame lies about where its share of all frames
says. NumPy halves, half a dozen calls for a batch.
"""

from __future__ import annotations

import ctypes

import numpy as np

from rtagent.learning.replay.look_up import Ints
from rtagent.memory.compiled import Function, compiled


class Search:
    """Finds transitions in a column of frames, all at a time.

    Args:
        column: (capacity,) frames; that of serial number s lies in slot s mod capacity.
    """

    def __init__(self, column: Ints) -> None:
        self._column = column

    def find(self, first: int, end: int, frames: Ints) -> tuple[Ints, bool]:
        """Look for frames.

        Args:
            first: oldest serial number in the column.
            end: one past the newest; greater than `first`.
            frames: (n,).

        Returns:
            Their serial numbers (n,), -1 for those that are not there; and whether all are.
        """
        serials = np.minimum(first + older_than(self._column, first, end, frames), end - 1)
        there = self._column.take(serials % len(self._column)) == frames
        return np.where(there, serials, -1), bool(there.all())


def prepare_search(column: Ints) -> Search:
    """A search in a column, compiled where that is possible."""
    function = compiled("rtagent_search")
    return Search(column) if function is None else _CompiledSearch(function, column)


def older_than(column: Ints, first: int, end: int, frames: Ints) -> Ints:
    """How many of the transitions first <= serial < end begin before each frame (n,)."""
    start, stop = first % len(column), (end - 1) % len(column) + 1
    if start < stop:
        return np.searchsorted(column[start:stop], frames)
    # They run past the end of the ring: two parts, each in ascending order.
    return np.searchsorted(column[start:], frames) + np.searchsorted(column[:stop], frames)


class _Job(ctypes.Structure):
    """`struct job` of `search.c`."""

    _fields_ = (
        ("column", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("capacity", "first", "end", "count")),
        *((name, ctypes.c_void_p) for name in ("frames", "serials")),
    )


class _CompiledSearch(Search):
    """One frame after the other."""

    def __init__(self, function: Function, column: Ints) -> None:
        # As long as this object lives, so does the memory that the job points to.
        super().__init__(column)
        self._function = function
        self._job = _Job(column=column.ctypes.data, capacity=len(column))
        self._address = ctypes.addressof(self._job)
        self._make_room(64)

    def find(self, first: int, end: int, frames: Ints) -> tuple[Ints, bool]:
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
