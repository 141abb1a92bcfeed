"""New weights, prepared while a process waits, and adopted between two inferences.

Why it is correct. A publication is copied out of shared memory piece by piece; a copy that learners
wrote over meanwhile is recognised by number and checksum and discarded whole, before any of it
reaches a network. The copy is then cast, piece by piece again, into a second network that does not
act, and the two are exchanged by `adopt`: never inside an inference, and never half.

New weights always act in the end. A process that has waited too little since its last inference
prepares a bounded part at the beginning of the next one (`hurry`), and a process whose copies were
written over several times in a row takes the newest weights over at once. Both count as inference
time. A newer publication does not interrupt the preparation of an older one.
"""

from __future__ import annotations

import numpy as np

from rtagent.clock import Clock
from rtagent.inference.standby import Standby
from rtagent.memory.array_buffer import Reading
from rtagent.memory.double_buffer import READ_ATTEMPTS
from rtagent.memory.weights import WeightBuffers, WeightsInfo

MOST_TORN = 3
"""Copies written over in a row, after which the next copy is made without a pause."""


class Weights:
    """The policy's weights, as the learners publish them.

    Args:
        buffers: shared memory.
        parameters: number of values.
        standby: the network that is filled.
        clock: time.

    Attributes:
        version: of the weights that act; -1 before the first.
        updates: gradient steps behind them.
    """

    def __init__(
        self, buffers: WeightBuffers, parameters: int, standby: Standby, clock: Clock
    ) -> None:
        self._buffers = buffers
        self._standby = standby
        self._clock = clock
        self._flat = np.zeros(parameters, np.float32)
        self._publication = 0
        self._reading: Reading[WeightsInfo] | None = None
        self._filled = 0
        self._ready: WeightsInfo | None = None
        self._torn = 0
        self._piece_s = 0.0
        self.version = -1
        self.updates = 0

    @property
    def pending(self) -> bool:
        """Whether there is something to prepare."""
        return self._ready is None and (
            self._reading is not None or self._buffers.number != self._publication
        )

    def prepare(self, until: float) -> None:
        """Prepare the newest weights, as far as that is possible until a time.

        Args:
            until: seconds; a piece that would probably last beyond it is not begun.
        """
        now = self._clock.now()
        while now + self._piece_s <= until:
            if not self._advance():
                return
            before, now = now, self._clock.now()
            self._piece_s = now - before
        # One piece that was held up must not make all later waits seem too short.
        if self.pending and until > now:
            self._piece_s *= 0.5

    def adopt(self) -> None:
        """Let new weights act if they are ready. Called between two inferences."""
        if self._ready is not None:
            self._standby.swap()
            self.version, self.updates = self._ready.version, self._ready.updates
            self._ready = None

    def hurry(self, seconds: float) -> None:
        """Prepare at the beginning of an inference, for lack of idle time.

        Args:
            seconds: what this may take, though one piece is always done; 0 if there was idle time.
        """
        if self._torn >= MOST_TORN:
            self.take_over()
        elif seconds > 0.0:
            until = self._clock.now() + seconds
            self._advance()
            self.prepare(until)

    def take_over(self) -> bool:
        """Prepare and adopt the newest weights at once; False if there have never been any."""
        for _ in range(READ_ATTEMPTS):
            while self._advance():
                pass
            if not self.pending:
                break
        self.adopt()
        return self.version >= 0

    def _advance(self) -> bool:
        """Do one piece; False if there is nothing to do, or the copy was written over."""
        if not self.pending:
            return False
        if self._reading is None:
            self._reading, self._filled = self._buffers.begin_reading(self._flat), 0
            return self._reading is not None
        reading = self._reading
        if not reading.complete:
            if reading.copy():
                return True
            self._reading = None
            self._torn += 1
            return False
        self._standby.fill(self._filled, self._flat)
        self._filled += 1
        if self._filled == self._standby.pieces:
            self._reading, self._ready, self._torn = None, reading.header, 0
            self._publication = reading.number
        return True


class NoWeights:
    """Takes the place of `Weights` where the policy has no weights of this run."""

    version = updates = 0

    def prepare(self, until: float) -> None:
        """Do nothing."""

    def adopt(self) -> None:
        """Do nothing."""

    def hurry(self, seconds: float) -> None:
        """Do nothing."""
