"""`StampedRing`: numbered slots in shared memory, which one process fills and uses again.

Why it is correct. Item k lies in slot k mod capacity, for ever, whatever the size of the ring is at
the moment. Each slot has a stamp, the number of the item in it, and `newest` is the number of the
newest item. To write item k, the writer

1. `_begin`: sets the slot's stamp to -1, which says that its contents are going; fence;
2. fills the slot;
3. `_publish`: sets the stamp to k; fence; sets `newest` to k.

Killed at any instant, it leaves at worst one slot that no reader accepts. A reader loads `newest`;
fence; copies items that are no newer; fence; and keeps those whose stamp is still their number
(`hold`). These are not older than `newest` said, by the first fence and that of step 3, and not
newer than their stamp, by the second one and that of step 1: they are whole. Nobody waits. Why
these fences are enough on every processor: `ordering.py`. Stamps and words are 8 bytes, aligned.

A ring shrinks from below. `floor` says that every item below it is given up; its writer is the
supervisor, and it only grows. The supervisor raises it first and returns the memory of the slots
afterwards, so a reader that has copied a hole finds, when it looks at the floor after its copy,
that its items lie below. A reader looks before its copy too, because the page of a hole comes back,
zeroed, as soon as it is read.

A list to which one process appends needs no stamps (`append`, `newest_entries`): entry k is written
before the count that announces it, after a fence as well. A reader that looks at the count once
more, after its copy, knows which slot the writer may have reached meanwhile, and leaves it out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rtagent.memory import ordering

CONTROL_BYTES = 64
"""Before the slots: `newest`, the bell of the frames, `floor`."""
GUARD_TICKS = 8
"""The oldest slots of a full ring, which the writer may reach during a read."""

_FLOOR_AT = 16
_GOING = -1

Ints = npt.NDArray[np.int64]
Entries = npt.NDArray[Any]


class RingBounds:
    """Which items a ring holds.

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

    def begin(self, newest: int, floor: int) -> None:
        """Start with the items floor <= k <= newest, which are in their slots already.

        Only before anybody else reads or writes the ring.
        """
        self._floor[0] = floor
        self._newest[0] = newest


class StampedRing(RingBounds):
    """Numbered slots; what an item is, a subclass says.

    Args:
        buffer: begins with `CONTROL_BYTES` of control words.
        stamps: (capacity,) int64 in the same memory.

    Attributes:
        stamps: number of the item in each slot; -1 while it is being replaced.
    """

    def __init__(self, buffer: memoryview, stamps: Ints) -> None:
        super().__init__(buffer, len(stamps))
        self.stamps = stamps
        self._words = memoryview(stamps)  # type: ignore[arg-type]

    def hold(self, numbers: Ints) -> npt.NDArray[np.bool_]:
        """Which items, just copied, were in their slots all the while, and not given up.

        Args:
            numbers: (...) of items that were announced before they were copied.
        """
        ordering.fence()
        whole: npt.NDArray[np.bool_] = self.stamps[numbers % self.capacity] == numbers
        whole &= numbers >= self.floor
        return whole

    def holds(self, *numbers: int) -> bool:
        """Whether all of these items, in ascending order, `hold`; sooner for a few of them."""
        ordering.fence()
        words, capacity = self._words, self.capacity
        for each in numbers:
            if words[each % capacity] != each:
                return False
        return numbers[0] >= self._floor[0]

    def _begin(self, number: int) -> int:
        """The slot of item `number`, to be filled now. Only the writer."""
        slot = number % self.capacity
        self._words[slot] = _GOING
        ordering.fence()
        return slot

    def _publish(self, number: int) -> None:
        """Say that item `number` is whole. Only the writer."""
        self._words[number % self.capacity] = number
        ordering.fence()
        self._newest[0] = number


def append(count: Ints, entries: Entries, entry: tuple[float, ...]) -> None:
    """Append to a list that keeps its newest entries. Only the writer.

    Args:
        count: (1,) entries so far.
        entries: (most,) of a structured type.
        entry: its fields.
    """
    number = int(count[0])
    # Whoever sees the old entry go sees the count that says so.
    ordering.fence()
    entries[number % len(entries)] = entry
    ordering.fence()
    count[0] = number + 1


def newest_entries(count: Ints, entries: Entries, most: int) -> Entries:
    """Copies of the newest entries, oldest first; fewer if the writer goes on meanwhile.

    Args:
        count: as in `append`.
        entries: as in `append`.
        most: how many at most.
    """
    before, kept = int(count[0]), len(entries)
    ordering.fence()
    first = max(0, before - min(most, kept))
    begin, end = first % kept, before % kept
    # Slices, for a list of their places takes five times as long to copy them.
    if begin < end or first == before:
        found: Entries = entries[begin:end].copy()
    else:
        found = np.concatenate([entries[begin:], entries[:end]])
    ordering.fence()
    gone = int(count[0]) - kept + 1 - first
    return found[max(0, gone) :]
