"""What all learners share: weights, Adam's moments and the target network, as flat arrays.

Why it is correct. Only the learner that holds the apply lock writes (`memory/turns.py`). The state
lies twice: an update reads the current copy and writes the other one, whose header says -1
meanwhile; it becomes current by one 8-byte store, after its header. A learner killed at any
instant leaves the current copy whole, and the next one begins the update of that copy anew. The
target network lies twice in the same way, with the number of updates that it has seen, so a
learner killed between the two stores leaves a target that is visibly due. Readers take no lock:
they copy, and accept the copy if its header still carries the number that they wanted, and the
checksum of the values; only two updates during one copy make them try again. Fences stand behind
the -1, before the store that makes a copy current, and around the copy of a reader
(`ordering.py`).
"""

from __future__ import annotations

from dataclasses import astuple, dataclass

import numpy as np
import numpy.typing as npt

from rtagent.memory import ordering
from rtagent.memory.weights import checksum

COPIES = 2
CONTROL_BYTES = 256
READ_ATTEMPTS = 8

_HEADER = np.dtype(
    [
        ("number", "<i8"), ("updates", "<i8"), ("steps", "<i8"), ("samples", "<i8"),
        ("followed", "<i8"), ("checksum", "<u8"),
    ]
)
_TARGET_AT = 128

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Progress:
    """How far learning is.

    Attributes:
        updates: gradients applied, over all runs; of a target network: seen by it.
        steps: gradients behind Adam's moments.
        samples: transitions used by these updates.
        followed: steps that an actor, which takes one for several of its critics, has followed; 0
            where all is updated together.
    """

    updates: int = 0
    steps: int = 0
    samples: int = 0
    followed: int = 0


@dataclass(frozen=True)
class Arrays:
    """One copy of the state, each (parameters,) float32.

    Attributes:
        weights: of the network that learns.
        mean: Adam's running mean of the gradient.
        square: Adam's running mean of its square.
    """

    weights: Floats
    mean: Floats
    square: Floats

    def copy_from(self, other: Arrays) -> None:
        """Take over every value of another copy."""
        np.copyto(self.weights, other.weights)
        np.copyto(self.mean, other.mean)
        np.copyto(self.square, other.square)


class LearnerState:
    """The shared state of the learners.

    Args:
        buffer: `LearnerState.size(parameters)` writable bytes.
        parameters: number of values.

    Attributes:
        copies: both copies; which is current is for `begin` and `commit` to say.
        served: checkpoints written of those asked for; an array of one. Writer: the learner that
            writes checkpoints.
    """

    def __init__(self, buffer: memoryview, parameters: int) -> None:
        self._current = np.frombuffer(buffer, "<i8", 1)
        self._target_current = np.frombuffer(buffer, "<i8", 1, 8)
        self.served = np.frombuffer(buffer, "<i8", 1, 16)
        self._headers = np.frombuffer(buffer, _HEADER, COPIES, 32)
        self._target_headers = np.frombuffer(buffer, _HEADER, COPIES, _TARGET_AT)
        stride = _stride(parameters)
        arrays = [
            np.frombuffer(buffer, np.float32, parameters, CONTROL_BYTES + index * stride)
            for index in range(4 * COPIES)
        ]
        self.copies = [Arrays(*arrays[3 * index : 3 * index + 3]) for index in range(COPIES)]
        self._targets = arrays[3 * COPIES :]

    @staticmethod
    def size(parameters: int) -> int:
        """Bytes for networks with that many values."""
        return CONTROL_BYTES + 4 * COPIES * _stride(parameters)

    @staticmethod
    def format(buffer: memoryview) -> None:
        """Mark the state as absent."""
        np.frombuffer(buffer, "<i8", 2)[:] = -1
        for at in (32, _TARGET_AT):
            np.frombuffer(buffer, _HEADER, COPIES, at)["number"] = -1

    @property
    def number(self) -> int:
        """Number of the current state, -1 if there is none. Cheap to compare."""
        return int(self._current[0])

    @property
    def target_number(self) -> int:
        """Number of the current target network, -1 if there is none. Cheap to compare."""
        return int(self._target_current[0])

    @property
    def progress(self) -> Progress:
        """Of the current state; exact under the apply lock."""
        return _progress(self._headers[max(self.number, 0) % COPIES])

    @property
    def target_updates(self) -> int:
        """Updates that the target network has seen; exact under the apply lock."""
        return int(self._target_headers["updates"][max(self.target_number, 0) % COPIES])

    # ---- under the apply lock

    @property
    def current(self) -> Arrays:
        """The current copy, to be read only."""
        return self.copies[max(self.number, 0) % COPIES]

    def begin(self) -> int:
        """The index of the other copy, to be filled; then `commit`."""
        index = (self.number + 1) % COPIES
        self._headers["number"][index] = -1
        ordering.fence()
        return index

    def commit(self, progress: Progress) -> None:
        """Make the copy that `begin` gave the current one."""
        values = self.copies[(self.number + 1) % COPIES].weights
        _publish(self._headers, self._current, progress, values)

    @property
    def target(self) -> Floats:
        """The current target network, to be read only."""
        return self._targets[max(self.target_number, 0) % COPIES]

    def begin_target(self) -> Floats:
        """The other copy of the target network, to be filled; then `commit_target`."""
        index = (self.target_number + 1) % COPIES
        self._target_headers["number"][index] = -1
        ordering.fence()
        return self._targets[index]

    def commit_target(self, updates: int) -> None:
        """Make the copy that `begin_target` gave the current one."""
        values = self._targets[(self.target_number + 1) % COPIES]
        _publish(self._target_headers, self._target_current, Progress(updates), values)

    # ---- by anybody

    def read_weights(self, out: Floats) -> Progress | None:
        """Copy the current weights.

        Args:
            out: (parameters,), filled; undefined if None is returned.

        Returns:
            How far they are; None if there are none, or if each attempt was lapped.
        """
        for _ in range(READ_ATTEMPTS):
            number = self.number
            if number < 0:
                return None
            header = _copied(self._headers, number, self.copies[number % COPIES].weights, out)
            if header is not None:
                return _progress(header)
        return None

    def read_target(self, out: Floats) -> int | None:
        """Copy the current target network.

        Args:
            out: (parameters,), filled; undefined if None is returned.

        Returns:
            Its number; None if there is none, or if each attempt was lapped.
        """
        for _ in range(READ_ATTEMPTS):
            number = self.target_number
            if number < 0:
                return None
            header = _copied(self._target_headers, number, self._targets[number % COPIES], out)
            if header is not None:
                return number
        return None


def _publish(
    headers: npt.NDArray[np.void],
    current: npt.NDArray[np.int64],
    progress: Progress,
    values: Floats,
) -> None:
    number = int(current[0]) + 1
    header = headers[number % COPIES : number % COPIES + 1]
    header["updates"] = progress.updates
    header["steps"] = progress.steps
    header["samples"] = progress.samples
    header["followed"] = progress.followed
    header["checksum"] = checksum(values, number, *astuple(progress))
    header["number"] = number
    ordering.fence()
    current[0] = number


def _copied(
    headers: npt.NDArray[np.void], number: int, values: Floats, out: Floats
) -> np.void | None:
    """Copy values that `number` has announced; their header, or none if they are not its own."""
    ordering.fence()
    header = headers[number % COPIES].copy()
    np.copyto(out, values)
    ordering.fence()
    whole = headers["number"][number % COPIES] == number
    found = checksum(out, number, *astuple(_progress(header)))
    return header if whole and found == header["checksum"] else None


def _progress(header: np.void) -> Progress:
    return Progress(*(int(header[name]) for name in ("updates", "steps", "samples", "followed")))


def _stride(parameters: int) -> int:
    return -(-parameters * 4 // 64) * 64
