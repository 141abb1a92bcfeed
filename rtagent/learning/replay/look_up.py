"""Transitions as columns, and copies of them out of the index.

A copy is prepared once and run often: it fills the same memory each time. The compiled version is
one pass over the rows; NumPy needs half a dozen calls.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from rtagent.memory.compiled import compiled

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class Transitions:
    """Memory for transitions as columns, each (n,); frames are given by their numbers.

    Args:
        count: n.
        row: dtype of a row, `row_dtype(...)`.

    Attributes:
        frame: the newest frame of the state.
        next_frame: the newest frame of the successor.
        rows: the rows; the columns below are views of them.
        action: the executed action; (n, *action_shape).
        reward: discounted sum of the rewards until the successor.
        discount: factor of the successor's value; undefined where it is terminal.
        shift: frames from state to successor.
        terminal: whether the successor is terminal, and so has no value.
        demonstrated: whether the action is from a demonstration, and not the policy's.
    """

    def __init__(self, count: int, row: np.dtype[Any]) -> None:
        self.frame: Ints = np.empty(count, np.int64)
        self.next_frame: Ints = np.empty(count, np.int64)
        self.rows: npt.NDArray[Any] = np.empty(count, row)
        self.action: npt.NDArray[Any] = self.rows["action"]
        self.reward: npt.NDArray[np.float32] = self.rows["reward"]
        self.discount: npt.NDArray[np.float32] = self.rows["discount"]
        self.shift: npt.NDArray[np.int32] = self.rows["shift"]
        self.terminal: Flags = self.rows["terminal"]
        self.demonstrated: Flags = self.rows["demonstrated"]

    def __len__(self) -> int:
        return len(self.frame)


def row_dtype(
    action: np.dtype[Any], pending: np.dtype[Any] | None = None, kept: np.dtype[Any] | None = None
) -> np.dtype[Any]:
    """The stored fields of a transition, apart from the frame of its state.

    Fields: `shift` (frames from state to successor), `reward`, `discount`, `terminal`,
    `demonstrated` (in a byte that alignment would leave empty), `action`; in a run that records
    them, `pending` and `next_pending`: the pending actions of the state and of the successor; and
    the `kept` fields, of the ledger's row that executed the action first.
    """
    fields: list[Any] = [
        ("shift", "<i4"), ("reward", "<f4"), ("discount", "<f4"),
        ("terminal", "?"), ("demonstrated", "?"), ("action", action.base, action.shape),
    ]
    if pending is not None:
        fields += [(name, pending) for name in ("pending", "next_pending")]
    return np.dtype([*fields, *fields_of(kept)], align=True)


def fields_of(kept: np.dtype[Any] | None) -> list[tuple[str, np.dtype[Any]]]:
    """Names and types of the fields that transitions keep of a row."""
    return [] if kept is None else [(name, kept[name]) for name in kept.names or ()]


class _Job(ctypes.Structure):
    """`struct job` of `look_up.c`."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in (
            "frames", "rows", "serials", "frame_out", "next_frame_out", "rows_out",
        )),
        *((name, ctypes.c_int64) for name in ("capacity", "row_bytes", "shift_at", "count")),
    )


class LookUp:
    """A copy of transitions out of the index, prepared once and run often.

    Args:
        frames: (capacity,) of the index; serial number s is in slot s mod capacity.
        rows: (capacity,) of a `row_dtype`.
        serials: (n,), contiguous, read at each run; the index must hold them then.
        out: n transitions, filled by each run.
    """

    def __init__(
        self, frames: Ints, rows: npt.NDArray[Any], serials: Ints, out: Transitions
    ) -> None:
        # The job points to their memory, so they are kept.
        self._frames, self._rows, self._serials, self._out = frames, rows, serials, out
        self._function = compiled("rtagent_look_up")
        arrays = (frames, rows, serials, out.frame, out.next_frame, out.rows)
        fields = rows.dtype.fields
        assert fields is not None
        self._job = _Job(
            *(array.ctypes.data for array in arrays), len(frames), rows.itemsize,
            fields["shift"][1], len(serials),
        )
        self._address = ctypes.addressof(self._job)

    def run(self) -> int:
        """Copy the transitions.

        Returns:
            The number of frames from state to successor, if it is the same for all, else 0.
        """
        if self._function is not None:
            return self._function(self._address)
        out, slots = self._out, self._serials % len(self._frames)
        self._frames.take(slots, out=out.frame, mode="clip")
        self._rows.take(slots, out=out.rows, mode="clip")
        np.add(out.frame, out.shift, out=out.next_frame)
        shift = int(out.shift[0]) if len(out) else 0
        return shift if np.count_nonzero(out.shift == shift) == len(out) else 0
