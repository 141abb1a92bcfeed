"""The learner's cache of frames: of a frame that it still has, only the slot is sent.

Stacks of one batch share frames with each other and with the stacks of other batches. The buffer
node decides into which slot of the learner's memory a frame is put, and remembers that. So both
sides agree on the content of the slots, as long as the learner processes the messages in the order
in which they were made (`session.py`), and both begin with empty slots when a node joins. Two
frames of one message never have the same slot.

A learner-side cache of experiences that are selected several times is what S. Morishima and H.
Matsutani, doi:10.1109/ACCESS.2024.3402835, Sec. VI-A, name as future work.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rtagent.memory.frames import Ints

Flags = npt.NDArray[np.bool_]


class SentFrames:
    """The buffer node's record of which frame lies in which slot of the learner's memory.

    Args:
        slots: number of frames that the learner keeps for this node.
        capacity: of the ring that the frames come from. Of two frames whose numbers are equal
            modulo the capacity, only the newer one can still be sampled.
    """

    def __init__(self, slots: int, capacity: int) -> None:
        self.slots = slots
        self._capacity = capacity
        self._slot_of = np.full(capacity, -1, np.int64)
        self._number_in = np.full(slots, -1, np.int64)
        self._next = 0

    def holds(self, numbers: Ints) -> Flags:
        """Whether the learner has each of these frames, (n,)."""
        slots = self._slot_of[numbers % self._capacity]
        held: Flags = (slots >= 0) & (self._number_in[slots] == numbers)
        return held

    def place(self, numbers: Ints) -> tuple[Ints, Flags]:
        """Give every frame of a message a slot.

        Args:
            numbers: (n,) of the frames, each once; n is at most the number of slots.

        Returns:
            The slots of the frames (n,), and whether each frame is new (n,): the learner does not
            have it yet, and its pixels must be sent.
        """
        slots, there = self._slot_of[numbers % self._capacity], self.holds(numbers)
        new = ~there
        if self.slots >= self._capacity:
            # There is room for the whole ring: a frame that is replaced can no longer be sampled.
            free = numbers[new] % self._capacity
        else:
            free = self._next_free(int(np.count_nonzero(new)), slots[there])
        replaced = self._number_in[free]
        old = replaced[replaced >= 0] % self._capacity
        # A newer frame with the same number modulo the capacity may have a slot: it keeps that.
        self._slot_of[old[self._slot_of[old] == free[replaced >= 0]]] = -1
        slots[new] = free
        self._number_in[free] = numbers[new]
        self._slot_of[numbers[new] % self._capacity] = free
        return slots, new

    def _next_free(self, count: int, used: Ints) -> Ints:
        """The next slots, in order, that this message does not use."""
        if not count:
            return np.empty(0, np.int64)
        candidates = (self._next + np.arange(count + len(used))) % self.slots
        chosen = candidates[~np.isin(candidates, used)][:count]
        self._next = int(chosen[-1] + 1) % self.slots
        return chosen
