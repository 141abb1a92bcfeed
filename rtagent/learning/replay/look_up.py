"""Transitions as columns, and their copies out of the index.

A copy is prepared once and made often: the same memory is filled again and again. Compiled, it is
one pass over the rows where NumPy takes half a dozen small steps.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from rtagent.memory.compiled import Function, compiled

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class Transitions:
    """Room for transitions as columns, each (n,); frames are named by their numbers.

    Args:
        count: n.
        row: dtype of a row, `row_dtype(...)`.

    Attributes:
        frame: the newest frame of the state.
        next_frame: the newest frame of the successor.
        rows: the other columns, which are views of it.
        action: what was executed; (n, *action_shape).
        reward: discounted sum of what came until the successor.
        discount: what the successor's value counts; not defined where it is terminal.
        shift: frames from state to successor.
        terminal: the successor has no value.
        demonstrated: the action is a demonstration's, and not the policy's.
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
    action: np.dtype[Any], pending: np.dtype[Any] | None = None, *, recurrent: bool = False
) -> np.dtype[Any]:
    """What is stored of a transition beside its state's frame.

    Fields: `shift` (frames from state to successor), `reward`, `discount`, `terminal`,
    `demonstrated` (a byte that alignment would leave empty), `action`; in a run that has them,
    `pending` and `next_pending`: the pending actions of the state and of the successor; of a
    recurrent policy `delay`, ticks from the state's frame to the row that executed the action, and
    `lag`, see `memory/policy_states.py`.
    """
    beside: list[tuple[str, Any]] = []
    if pending is not None:
        beside += [(name, pending) for name in ("pending", "next_pending")]
    if recurrent:
        beside += [("delay", "<i4"), ("lag", "<i4")]
    return np.dtype(
        [
            ("shift", "<i4"), ("reward", "<f4"), ("discount", "<f4"),
            ("terminal", "?"), ("demonstrated", "?"), ("action", action.base, action.shape),
            *beside,
        ],
        align=True,
    )


class LookUp:
    """A copy of transitions, column by column; prepared once and made often.

    Args:
        frames: (capacity,) where the index keeps its transitions; serial number s lies in slot
            s mod capacity.
        rows: (capacity,) of a `row_dtype`.
        serials: (n,), contiguous, looked at when it runs; they must be held then.
        out: of n transitions, filled when it runs.
    """

    def __init__(
        self, frames: Ints, rows: npt.NDArray[Any], serials: Ints, out: Transitions
    ) -> None:
        self._frames, self._rows, self._serials, self._out = frames, rows, serials, out

    def run(self) -> int:
        """Copy; frames from state to successor if that is the same for all, else 0."""
        out, slots = self._out, self._serials % len(self._frames)
        self._frames.take(slots, out=out.frame, mode="clip")
        self._rows.take(slots, out=out.rows, mode="clip")
        np.add(out.frame, out.shift, out=out.next_frame)
        shift = int(out.shift[0]) if len(out) else 0
        return shift if np.count_nonzero(out.shift == shift) == len(out) else 0


def prepare_look_up(
    frames: Ints, rows: npt.NDArray[Any], serials: Ints, out: Transitions
) -> LookUp:
    """A `LookUp`, compiled where that is possible."""
    function = compiled("rtagent_look_up")
    if function is None:
        return LookUp(frames, rows, serials, out)
    return _CompiledLookUp(function, frames, rows, serials, out)


class _Job(ctypes.Structure):
    """`struct job` of `look_up.c`."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in (
            "frames", "rows", "serials", "frame_out", "next_frame_out", "rows_out",
        )),
        *((name, ctypes.c_int64) for name in ("capacity", "row_bytes", "shift_at", "count")),
    )


class _CompiledLookUp(LookUp):
    """Row by row."""

    def __init__(
        self, function: Function, frames: Ints, rows: npt.NDArray[Any], serials: Ints,
        out: Transitions,
    ) -> None:
        # As long as this object lives, so does the memory that the job points to.
        super().__init__(frames, rows, serials, out)
        self._function = function
        arrays = (frames, rows, serials, out.frame, out.next_frame, out.rows)
        fields = rows.dtype.fields
        assert fields is not None
        self._job = _Job(
            *(array.ctypes.data for array in arrays), len(frames), rows.itemsize,
            fields["shift"][1], len(serials),
        )
        self._address = ctypes.addressof(self._job)

    def run(self) -> int:
        return self._function(self._address)
