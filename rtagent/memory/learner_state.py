"""The state that all learners share: weights, Adam's moments and the target network, flat arrays.

Why it is correct. Only the learner that holds the apply lock writes (`turns.py`). The state is one
double buffer: an update reads the current copy and fills the other one. So a learner killed at any
instant leaves the current copy whole, and the next one begins the update of that copy anew. The
target network is another double buffer, with the number of updates that it has seen, so a learner
killed between the two publications leaves a target that is visibly due. Readers take no lock.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rtagent.memory.array_buffer import CONTROL_BYTES, ArrayDoubleBuffer, Copying, Floats
from rtagent.memory.records import SharedRecord

FIRST_EXPONENT = 16
"""Exponent of the loss scale that learning begins with, as in torch's `GradScaler`."""
_CONTROL_AT = 64
_PAYLOAD_AT = _CONTROL_AT + 2 * CONTROL_BYTES


@dataclass(frozen=True)
class Progress:
    """How far learning is.

    Attributes:
        updates: gradients applied, over all runs; of a target network: seen by it.
        steps: gradients behind Adam's moments.
        samples: transitions used by these updates.
        actor_steps: of `steps`, how many the steps of a delayed actor account for, each for
            several; 0 where actor and critics are updated together.
        actor_skipped: of `steps`, how many left a delayed actor and its moments as they were.
        scale_exponent: of 2, the loss scale of float16.
        scale_stable: updates since the loss scale changed.
    """

    updates: int = 0
    steps: int = 0
    samples: int = 0
    actor_steps: int = 0
    actor_skipped: int = 0
    scale_exponent: int = FIRST_EXPONENT
    scale_stable: int = 0


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


class CheckpointRecord(SharedRecord):
    """What checkpoints hold. Writer: the learner that has written one.

    Attributes:
        served: how many of the requested checkpoints are done.
        updates: in the newest checkpoint of this run; 0 if there is none.
    """

    served: int
    updates: int


class PrecisionRecord(SharedRecord):
    """`chosen`: the precision that was measured as fastest, numbered from 1; 0: not measured."""

    chosen: int


class LearnerState:
    """The shared state of the learners.

    Args:
        buffer: `LearnerState.size(parameters)` bytes; zeroed, there is no state.
        parameters: number of values.

    Attributes:
        payload: the memory of all arrays.
        copies: both copies; `begin` gives the index of the one to fill.
        checkpoints: how many have been written.
        precision: of all learners' computations, where that was measured. Writer: the learner that
            measures it, under the apply lock.
    """

    def __init__(self, buffer: memoryview, parameters: int) -> None:
        self.checkpoints = CheckpointRecord(buffer)
        self.precision = PrecisionRecord(buffer[CheckpointRecord.size() :])
        # The words of both lie on the first page, which is there also where nobody learns.
        second = _CONTROL_AT + CONTROL_BYTES
        self.payload = payload = buffer[_PAYLOAD_AT:]
        self._state = ArrayDoubleBuffer(
            buffer[_CONTROL_AT:second], payload, Progress, parameters, arrays=3
        )
        self._target = ArrayDoubleBuffer(
            buffer[second:_PAYLOAD_AT], payload[ArrayDoubleBuffer.payload_bytes(parameters, 3) :],
            Progress, parameters,
        )
        self.copies = [Arrays(*arrays) for arrays in self._state.copies]

    @staticmethod
    def size(parameters: int) -> int:
        """Bytes for networks with that many values."""
        return _PAYLOAD_AT + ArrayDoubleBuffer.payload_bytes(parameters, arrays=4)

    @property
    def number(self) -> int:
        """Number of the current state, 0 if there is none. Cheap to compare."""
        return self._state.number

    @property
    def target_number(self) -> int:
        """Number of the current target network, 0 if there is none. Cheap to compare."""
        return self._target.number

    @property
    def progress(self) -> Progress:
        """How far learning has come in the current state; exact under the apply lock."""
        return self._state.header

    @property
    def target_updates(self) -> int:
        """Updates that the target network has seen; exact under the apply lock."""
        return self._target.header.updates

    # ---- under the apply lock

    @property
    def current(self) -> Arrays:
        """The current copy, to be read only."""
        return self.copies[self._state.current]

    def begin(self) -> int:
        """The index of the other copy, to be filled; then `commit`."""
        return self._state.begin()

    def commit(self, progress: Progress, total: int | None = None) -> None:
        """Make the copy that `begin` gave the current one; `total` as in `ArrayDoubleBuffer`."""
        self._state.commit(progress, total)

    @property
    def target(self) -> Floats:
        """The current target network, to be read only."""
        return self._target.copies[self._target.current][0]

    def begin_target(self) -> Floats:
        """The other copy of the target network, to be filled; then `commit_target`."""
        return self._target.copies[self._target.begin()][0]

    def commit_target(self, updates: int, total: int | None = None) -> None:
        """Make the copy that `begin_target` gave the current one; `total` as in `commit`."""
        self._target.commit(Progress(updates), total)

    # ---- by any process

    def read_weights(self, copying: Copying) -> Progress | None:
        """Copy the current weights (parameters,); the copy is undefined after None.

        Returns:
            How far they are; None if there are none, or if each attempt was lapped.
        """
        return self._state.read_with(copying)

    def read_target(self, copying: Copying) -> Progress | None:
        """Copy the current target network, as `read_weights` does; the updates it has seen."""
        return self._target.read_with(copying)
