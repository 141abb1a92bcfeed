"""What the frame ring and the tick ledger have in common: numbered slots that are used again.

Item k lies in slot k mod capacity. `newest` is an aligned 8-byte word, set once item `newest` is
whole. The slots that the writer may reach while a reader copies are kept out of reach.
"""

from __future__ import annotations

import numpy as np

CONTROL_BYTES = 64
"""Before the slots: the `newest` word, and what else the ring needs."""
GUARD_TICKS = 8
"""The oldest slots of a full ring, which the writer may reach during a read."""


class Ring:
    """Numbered slots in shared memory.

    Args:
        buffer: the `newest` word comes first.
        capacity: slots.
    """

    def __init__(self, buffer: memoryview, capacity: int) -> None:
        self.capacity = capacity
        self._newest = np.frombuffer(buffer, "<i8", 1)

    @staticmethod
    def format(buffer: memoryview) -> None:
        """Mark a new ring as empty (of the zeroed slots, only slot 0 looks like a written one)."""
        np.frombuffer(buffer, "<i8", 1)[0] = -1
        np.frombuffer(buffer, "<i8", 1, CONTROL_BYTES)[0] = -1

    @property
    def newest(self) -> int:
        """Number of the newest whole item; -1 if there is none."""
        return int(self._newest[0])

    @property
    def oldest(self) -> int:
        """Number of the oldest item that can be read safely while the writer goes on."""
        return max(0, self.newest - self.capacity + 1 + GUARD_TICKS)
