"""What the frame ring and the tick ledger have in common: numbered slots that are used again.

Why it is correct. Item k lies in slot k mod capacity, for ever, whatever the size of the ring is at
the moment. `newest` is an aligned 8-byte word, set once item `newest` is whole; its writer is the
environment. The slots that the writer may reach while a reader copies are kept out of reach.

A ring shrinks from below. `floor`, another aligned word, says that every item below it is given
up; its writer is the supervisor, and it only grows. The supervisor raises it first and returns the
memory of the slots afterwards, so a reader that has copied a hole finds, when it looks at the floor
after its copy, that its items lie below. A reader looks before its copy too, because the page of a
hole comes back, zeroed, as soon as it is read. `newest` announces, and the floor is a mark of what
is used again, both in the sense of `ordering.py`.
"""

from __future__ import annotations

import numpy as np

from rtagent.memory import ordering

CONTROL_BYTES = 64
"""Before the slots: `newest`, the bell of the frames, `floor`."""
GUARD_TICKS = 8
"""The oldest slots of a full ring, which the writer may reach during a read."""

_FLOOR_AT = 16


class Ring:
    """Numbered slots in shared memory.

    Args:
        buffer: begins with `CONTROL_BYTES` of control words.
        capacity: slots.
    """

    def __init__(self, buffer: memoryview, capacity: int) -> None:
        self.capacity = capacity
        # An item store of a memoryview is one 8-byte store.
        self._newest = buffer[:8].cast("q")
        self._floor = buffer[_FLOOR_AT : _FLOOR_AT + 8].cast("q")

    @staticmethod
    def format(buffer: memoryview) -> None:
        """Mark a new ring as empty (of the zeroed slots, only slot 0 looks like a written one)."""
        np.frombuffer(buffer, "<i8", 1)[0] = -1
        np.frombuffer(buffer, "<i8", 1, CONTROL_BYTES)[0] = -1

    @property
    def control_addresses(self) -> tuple[int, int]:
        """Where `newest` and `floor` lie in this process, for compiled code."""
        newest, floor = (np.frombuffer(word, "<i8") for word in (self._newest, self._floor))
        return newest.ctypes.data, floor.ctypes.data

    @property
    def newest(self) -> int:
        """Number of the newest item, -1 if there is none: whole for whoever loads it after this."""
        newest = self._newest[0]
        ordering.fence()
        return newest

    @property
    def floor(self) -> int:
        """Number of the first item that has not been given up; the memory below may be gone."""
        return self._floor[0]

    @property
    def oldest(self) -> int:
        """Number of the oldest item that can be read safely while the writer goes on."""
        return max(self.newest - self.capacity + 1 + GUARD_TICKS, self.floor)

    def raise_floor(self, floor: int) -> None:
        """Give up every item below `floor`; a lower one than before changes nothing.

        Only the supervisor.
        """
        if floor > self.floor:
            self._floor[0] = floor
            # Before the memory goes.
            ordering.fence()

    def _announce(self, newest: int) -> None:
        """Say that an item is whole. Only the environment process."""
        ordering.fence()
        self._newest[0] = newest

    def begin(self, newest: int, floor: int) -> None:
        """Start with the items floor <= k <= newest, which are in their slots already.

        Only before anybody else reads or writes the ring.
        """
        self._floor[0] = floor
        self._newest[0] = newest
