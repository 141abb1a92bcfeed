"""The memory behind the rings: reserved for the ticks that are kept, and for no others.

Frame k and row k lie in slot k mod capacity for ever; the capacity is address space, not memory.
The slots of the ticks that are kept, and of those that the writer reaches next, have memory; as
the writer goes on, slots ahead of it are reserved and those that the limit has given up are
punched. So a ring shrinks at once and grows as it fills.

Why it is correct. All of it runs in the supervisor. Two numbers say which slots have memory:
ticks from `low` on have not been punched, and ticks below `high` have been reserved. The slot of
tick k is also that of tick k + capacity: a tick whose slot the writer gets next is never punched.
What may be punched is therefore the ticks from `high - capacity` to the floor, and of their memory
only the pages that hold nothing else: pages shared with a kept tick, with the reserve, with
another array or with the other end of the ring stay. The floor is raised before anything is
punched (`ring.py` says what readers make of that), and `newest` is read afresh before each slice.
To meet a hole in the making, the writer would have to pass the whole reserve within one slice, a
few milliseconds.

A reader that samples below a floor just raised brings single pages back. That shows in the kernel's
count of pages; once it is worth while, all that has been given up is punched again. What is there
even then the kernel cannot return, such as a huge page of which a part is pinned, and it is left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rtagent.memory.arena import PAGE, Arena
from rtagent.memory.ring import GUARD_TICKS, RingBounds

SLICE_BYTES = 4 << 20
"""Bytes punched between two looks at the writer's position: about a millisecond of work."""
SURPLUS_BYTES = 1 << 20
"""Bytes that readers may have brought back before they are punched again."""


@dataclass(frozen=True)
class SlotArray:
    """One array of a ring: the item of tick k lies in slot k mod capacity.

    Attributes:
        arena: where it lies.
        start: byte of slot 0.
        item_bytes: bytes of a slot.
    """

    arena: Arena
    start: int
    item_bytes: int


class RingMemory:
    """Reserves and punches the slots of the rings.

    Args:
        rings: those whose floor is raised.
        arrays: every array whose slots come and go with the ticks.
        capacity: slots of each ring.
        first_tick: the run's first tick; nothing has memory yet. A replay that is restored before
            it must be written, and begun with `RingBounds.begin`, between two calls of `maintain`.
    """

    def __init__(
        self, rings: Sequence[RingBounds], arrays: Sequence[SlotArray], capacity: int,
        first_tick: int,
    ) -> None:
        self._rings, self._arrays, self._capacity = rings, arrays, capacity
        self._tick_bytes = sum(array.item_bytes for array in arrays)
        self._low = self._high = first_tick
        self._again, self._stuck = False, 0

    def maintain(self, newest: int, limit: int, ahead: int, budget: int) -> bool:
        """Give up what the limit leaves out, and keep the writer's next slots reserved.

        Args:
            newest: number of the newest tick.
            limit: ticks to keep.
            ahead: ticks to keep reserved after the newest one.
            budget: bytes to punch, and to reserve, at most.

        Returns:
            Whether nothing is left to punch or to reserve.

        Raises:
            UserError: the memory to reserve is not available; what can be punched has been.
        """
        ticks = max(1, budget // self._tick_bytes)
        for ring in self._rings:
            ring.raise_floor(newest - limit + 1)
        target = newest + 1 + ahead
        # Punched first: what comes back may be what has to be reserved.
        punched = self._punch(target, ticks)
        return self._reserve(newest + 1, target, ticks) and punched

    def _punch(self, target: int, ticks: int) -> bool:
        """Return memory of at most so many ticks; whether nothing is left to do."""
        floor = self._rings[0].floor
        # Restored ticks have memory since they were written.
        self._low = min(self._low, floor)
        dead = max(self._high, target) - self._capacity
        if self._again:
            # These have been punched before: the slots that the writer gets now must be reserved.
            self._low = max(self._low, dead)
        low = max(self._low, dead)
        stop = min(floor, low + ticks)
        step = max(1, SLICE_BYTES // self._tick_bytes)
        while low < stop:
            if self._writer_is_near(target):
                return False
            self._punch_slice(dead, low, min(stop, low + step))
            self._low = low = min(stop, low + step)
        if low >= floor:
            # What is not reserved yet is missing, and no surplus.
            surplus = max(0, self._surplus(dead, floor))
            self._stuck = surplus if self._again else min(self._stuck, surplus)
            self._again = surplus > self._stuck + SURPLUS_BYTES
            if self._again:
                self._low = low = dead
        return low >= floor

    def _punch_slice(self, dead: int, start: int, stop: int) -> None:
        """Punch ticks start <= k < stop; everything from `dead` on is given up."""
        for array in self._arrays:
            # Including the page that the slice before had to leave, for it holds a part of both.
            first = max(dead, start - PAGE // array.item_bytes - 1)
            for begin, end in self._bytes(array, first, stop):
                array.arena.punch(begin, end)

    def _surplus(self, dead: int, floor: int) -> int:
        """Bytes that the kernel holds although they were punched; a page or so less."""
        arenas = {array.arena for array in self._arrays}
        surplus = sum(arena.held - arena.size for arena in arenas)
        for array in self._arrays:
            for begin, end in self._bytes(array, dead, floor):
                surplus += max(0, end // PAGE - -(-begin // PAGE)) * PAGE
        return surplus

    def _reserve(self, first: int, target: int, ticks: int) -> bool:
        """Reserve memory of at most so many ticks; whether the target is reached."""
        # A writer that has passed the reserve has found memory by itself.
        start = max(self._high, first)
        stop = min(target, start + ticks)
        # A slot whose former tick was never punched has its memory already.
        bare = min(stop, self._low + self._capacity)
        for array in self._arrays:
            for begin, end in self._bytes(array, start, bare):
                array.arena.reserve(begin, end)
        self._high = max(self._high, stop)
        return self._high >= target

    def _writer_is_near(self, target: int) -> bool:
        return max(ring.newest for ring in self._rings) + GUARD_TICKS >= target

    def _bytes(self, array: SlotArray, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """The byte ranges of ticks start <= k < stop, at most a whole ring: none, one or two."""
        if stop <= start:
            return
        first = start % self._capacity
        last = first + stop - start
        size, seam = array.item_bytes, min(last, self._capacity)
        yield array.start + first * size, array.start + seam * size
        if last > seam:
            yield array.start, array.start + (last - seam) * size
