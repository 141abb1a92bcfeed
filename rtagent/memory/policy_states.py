"""The states of a recurrent policy: what inferences began with, and what they left.

With staggered processes there is no such thing as the previous inference: when one begins, those
before it may be under way. So an inference on frame f looks at the inferences of its episode that
have ended by then, takes the one on the newest frame g < f and begins with what that one left; with
zeros if there is none, as after a reset. f - g is the lag of its state, in ticks. Several processes
may have made inferences on g, each with a state of its own, so whose it was is kept, too. An
inference that is made again by the same process on the same frame begins as it did before.

Why it is correct. Each inference process has a `StampedRing` of its last `ENTRIES` inferences, and
nobody else writes it. It publishes an entry when the inference has ended, and before it deposits
the action, so whoever finds the action finds what is behind it. Killed in between, it leaves one
entry that no reader accepts, and nothing that it had published changes; its successor goes on
behind the newest entry. Nobody waits: a reader that meets an entry being replaced takes another
one, or zeros. Frames are never numbered twice, so the entries of a process that is long gone are
merely old.

The ledger keeps what was used: when an action is executed, the environment copies what its
inference began with into the row, for learners to read. After `ENTRIES` more inferences of the same
process the entry is gone, and the row says that it is unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rtagent.config import MAX_INFERENCE_PROCESSES
from rtagent.memory.records import whole_cache_lines
from rtagent.memory.ring import CONTROL_BYTES, StampedRing

if TYPE_CHECKING:
    from rtagent.memory.blueprint import Blueprint

Floats = npt.NDArray[np.float32]

ENTRIES = 16
"""Inferences of one process that are kept."""
UNKNOWN_LAG = -1
NOBODY = -1


class Beginning(NamedTuple):
    """What an inference began with.

    Attributes:
        lag: ticks from the frame behind the state to its own; 0: the state was zeros.
        state: (size,).
        worker: of the process that left the state; -1 if it was zeros.
    """

    lag: int
    state: Floats
    worker: int = NOBODY


class PolicyStates:
    """The states of all inference processes.

    Args:
        buffer: `PolicyStates.size(...)` writable bytes.
        size: numbers of a state.
    """

    def __init__(self, buffer: memoryview, size: int) -> None:
        self._buffer, self._size = buffer, size
        self._rings: dict[int, _Ring] = {}

    @staticmethod
    def size(size: int) -> int:
        """Bytes for states of so many numbers."""
        return MAX_INFERENCE_PROCESSES * _ring_bytes(size)

    @staticmethod
    def format(buffer: memoryview, size: int) -> None:
        """Mark all entries as missing."""
        for worker in range(MAX_INFERENCE_PROCESSES):
            StampedRing.format(buffer[worker * _ring_bytes(size) :])

    def keep(self, worker: int, frame: int, beginning: Beginning, left: Floats) -> None:
        """Publish an inference that has ended. Only inference process `worker`.

        Args:
            worker: its number.
            frame: that it was made on.
            beginning: what it began with.
            left: (size,), what it ended with.
        """
        self._ring(worker).write(frame, beginning, left)

    def begin(self, worker: int, rows: int, frame: int, start: int) -> Beginning:
        """What an inference begins with.

        Args:
            worker: whose inference it is.
            rows: processes whose states are looked at.
            frame: that it is made on.
            start: the first frame of its episode.
        """
        again = self.behind(worker, frame)
        if again is not None:
            return again
        candidates = [
            (*found, each) for each in range(rows)
            if (found := self._ring(each).newest_before(frame, start)) is not None
        ]
        # Each process has one candidate at most; the newest one that is whole is taken.
        for behind, number, by in sorted(candidates, key=lambda each: -each[0]):
            left = self._ring(by).left(number)
            if left is not None:
                return Beginning(frame - behind, left, by)
        return Beginning(0, np.zeros(self._size, np.float32))

    def behind(self, worker: int, frame: int) -> Beginning | None:
        """What a process's inference on a frame began with; None if that is not known any more."""
        return self._ring(worker).beginning(frame)

    def _ring(self, worker: int) -> _Ring:
        if worker not in self._rings:
            at = worker * _ring_bytes(self._size)
            part = self._buffer[at : at + _ring_bytes(self._size)]
            self._rings[worker] = _Ring(part, self._size)
        return self._rings[worker]


class _Ring(StampedRing):
    """The newest inferences of one process, numbered as they end."""

    def __init__(self, buffer: memoryview, size: int) -> None:
        self._entries = np.frombuffer(buffer, _entry_dtype(size), ENTRIES, CONTROL_BYTES)
        super().__init__(buffer, self._entries["number"])

    def write(self, frame: int, beginning: Beginning, left: Floats) -> None:
        """Append an inference."""
        number = self.newest + 1
        entry = self._entries[self._begin(number)]
        entry["frame"], entry["lag"], entry["worker"] = frame, beginning.lag, beginning.worker
        entry["began"], entry["left"] = beginning.state, left
        self._publish(number)

    def newest_before(self, frame: int, start: int) -> tuple[int, int] | None:
        """The entry on the newest frame start <= g < frame: g, and its number."""
        newest = self.newest
        for number in range(newest, max(-1, newest - ENTRIES), -1):
            found = int(self._entries["frame"][number % ENTRIES])
            if start <= found < frame and self.holds(number):
                return found, number
            if found < start:
                return None
        return None

    def left(self, number: int) -> Floats | None:
        """What an inference ended with; None if its entry is being replaced."""
        left: Floats = self._entries["left"][number % ENTRIES].copy()
        return left if self.holds(number) else None

    def beginning(self, frame: int) -> Beginning | None:
        """What the newest inference on a frame began with; None if its entry is gone."""
        newest = self.newest
        for slot in np.flatnonzero(self._entries["frame"] == frame).tolist():
            number = newest - (newest - slot) % ENTRIES
            entry = self._entries[slot].copy()
            if number >= 0 and self.holds(number) and entry["frame"] == frame:
                return Beginning(int(entry["lag"]), entry["began"], int(entry["worker"]))
        return None


def state_field(blueprint: Blueprint) -> list[tuple[Any, ...]]:
    """The fields of a row for a recurrent policy's state; [] in a run without one."""
    if not blueprint.state_size:
        return []
    size = blueprint.state_size
    return [("state_lag", "<i4"), ("state_worker", "<i4"), ("state", "<f4", (size,))]


def _entry_dtype(size: int) -> np.dtype[Any]:
    """Fields: `number` (the stamp), `frame`, `lag`, `worker`, `began` and `left`, as `keep` takes
    them."""
    return np.dtype(
        [
            ("number", "<i8"), ("frame", "<i8"), ("lag", "<i8"), ("worker", "<i8"),
            ("began", "<f4", (size,)), ("left", "<f4", (size,)),
        ],
        align=True,
    )


def _ring_bytes(size: int) -> int:
    """Bytes of one process's ring."""
    return whole_cache_lines(CONTROL_BYTES + ENTRIES * _entry_dtype(size).itemsize)
