"""Frames that the learner still has: only their places travel, not their pixels.

Stacks of one batch share frames, and batches share them with each other. The buffer node decides in
which slot of the learner's memory a frame is put, and remembers it: so both sides always agree on
what is there, as long as the learner reads the messages in the order in which they were made
(`learner.py` does), and both begin anew together when a node joins. Frames of the message itself
never push each other out.

A learner-side cache of experiences that are selected several times is what S. Morishima and H.
Matsutani, doi:10.1109/ACCESS.2024.3402835, Sec. VI-A, name as future work.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rtagent.memory.frames import Ints

Flags = npt.NDArray[np.bool_]
Frames = npt.NDArray[Any]


class SentFrames:
    """Which frames are in the learner's memory, and where: the buffer node's knowledge.

    Args:
        slots: of the learner's memory for this node.
        capacity: of the ring that the frames come from: of two frames with the same number modulo
            this, only the newer one can still be sampled.
    """

    def __init__(self, slots: int, capacity: int) -> None:
        self.slots = slots
        self._capacity = capacity
        self._slot_of = np.full(capacity, -1, np.int64)
        self._number_in = np.full(slots, -1, np.int64)
        self._next = 0

    def holds(self, numbers: Ints) -> Flags:
        """Which of the frames (n,) are there."""
        slots = self._slot_of[numbers % self._capacity]
        held: Flags = (slots >= 0) & (self._number_in[slots] == numbers)
        return held

    def place(self, numbers: Ints) -> tuple[Ints, Flags]:
        """Give every frame a slot.

        Args:
            numbers: (n,) of frames, each once, n at most the number of slots.

        Returns:
            Their slots (n,), and which are not there yet (n,): their pixels must travel.
        """
        slots, there = self._slot_of[numbers % self._capacity], self.holds(numbers)
        new = ~there
        if self.slots >= self._capacity:
            # Room for the whole ring: what leaves a slot can be sampled no more.
            free = numbers[new] % self._capacity
        else:
            free = self._free(int(np.count_nonzero(new)), slots[there])
        gone = self._number_in[free]
        old = gone[gone >= 0] % self._capacity
        # A ring's slot may by now belong to a newer frame, which stays known.
        self._slot_of[old[self._slot_of[old] == free[gone >= 0]]] = -1
        slots[new] = free
        self._number_in[free] = numbers[new]
        self._slot_of[numbers[new] % self._capacity] = free
        return slots, new

    def _free(self, count: int, used: Ints) -> Ints:
        """The next slots in turn that this message does not use."""
        if not count:
            return np.empty(0, np.int64)
        candidates = (self._next + np.arange(count + len(used))) % self.slots
        chosen = candidates[~np.isin(candidates, used)][:count]
        self._next = int(chosen[-1] + 1) % self.slots
        return chosen


class FrameStore:
    """The learner's memory for the frames of one node.

    Args:
        slots: how many.
        shape: of a frame.
        dtype: of its elements.
    """

    def __init__(self, slots: int, shape: tuple[int, ...], dtype: str) -> None:
        self._frames: Frames = np.zeros((slots, *shape), dtype)

    def put(self, slots: Ints, frames: Frames) -> None:
        """Keep frames (n, *shape) in slots (n,)."""
        self._frames[slots] = frames

    def stacks(self, slots: Ints) -> Frames:
        """Copies (B, L, *shape) of the frames in slots (B, L)."""
        return self._frames.take(slots, axis=0)
