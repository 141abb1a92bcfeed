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
afterwards. So a reader looks at the floor after its copy: if it has copied a hole, its items lie
below. A reader looks before its copy too, because the page of a hole comes back, zeroed, as soon as
it is read.

A list to which one process appends needs no stamps (`EntryList`): entry k is written before the
count that announces it, after a fence as well. A reader that looks at the count once more, after
its copy, knows which slot the writer may have reached meanwhile, and leaves it out.
"""

from __future__ import annotations

import sys
from typing import Any, Generic

import numpy as np
import numpy.typing as npt

from rtagent.memory import ordering
from rtagent.memory.records import WORD, Layout, Record

CONTROL_BYTES = 64
"""Bytes before the slots, for `newest`, the bell of the frames, and `floor`."""
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
        self._newest = buffer[:WORD].cast("q")
        self._floor = buffer[_FLOOR_AT : _FLOOR_AT + WORD].cast("q")

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
        """Number of the newest item, -1 if there is none; to be read before the item itself."""
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
        """Whether all of these items, in ascending order, `hold`; for a few faster than `hold`."""
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


class EntryList(Generic[Record]):
    """A list to which one process appends, and which keeps its newest entries.

    Args:
        buffer: `EntryList.size(layout, kept)` bytes or more, aligned to 8; zeroed, it is empty.
        layout: of an entry.
        kept: how many are kept.
    """

    def __init__(self, buffer: memoryview, layout: Layout[Record], kept: int) -> None:
        self._layout = layout
        self._count = buffer[:WORD].cast("q")
        self._bytes = buffer[WORD : self.size(layout, kept)]
        self._entries: Entries = np.frombuffer(self._bytes, layout.dtype)

    @staticmethod
    def size(layout: Layout[Record], kept: int) -> int:
        """Bytes of the list."""
        return WORD + kept * layout.size

    @property
    def count(self) -> int:
        """Entries so far, those included that are no longer kept."""
        return self._count[0]

    def append(self, entry: Record) -> None:
        """Append an entry. Only the writer."""
        number, layout = self._count[0], self._layout
        # Whoever sees the old entry go sees the count that says so.
        ordering.fence()
        layout.store(self._bytes, number % len(self._entries) * layout.size, entry)
        ordering.fence()
        self._count[0] = number + 1

    def newest(self, most: int = sys.maxsize) -> Entries:
        """Copies of the newest entries, oldest first; fewer if the writer goes on meanwhile.

        Args:
            most: how many at most; there are no more than are kept.

        Returns:
            A structured array with the names of the entry's fields.
        """
        count = self._count[0]
        return self._between(count - most, count)

    def since(self, number: int) -> tuple[Entries, int]:
        """Copies of the entries from a number on, as `newest` gives them.

        Args:
            number: of the first one wanted, at most `count`.

        Returns:
            The entries, and the count that they lead to: the number from which to go on.
        """
        count = self._count[0]
        return self._between(number, count), count

    def _between(self, first: int, before: int) -> Entries:
        """Copies of the entries first <= k < before that are kept; `before`: a count just read."""
        entries, kept = self._entries, len(self._entries)
        ordering.fence()
        first = max(0, first, before - kept)
        begin, end = first % kept, before % kept
        # Slices, for copying by a list of indices takes five times as long.
        if begin < end or first == before:
            found: Entries = entries[begin:end].copy()
        else:
            found = np.concatenate([entries[begin:], entries[:end]])
        ordering.fence()
        gone = self._count[0] - kept + 1 - first
        return found[max(0, gone) :]
