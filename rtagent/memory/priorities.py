"""The priorities of all transitions, shared by the learners.

A transition is named by its state's frame, which no other transition has: a decision sees a newer
frame than those before. Frame k has leaf k mod leaves. As many leaves as the frame ring has slots
are enough, since two frames that share a leaf are never in the ring together.

Why it is correct. Every access holds two locks: one between the threads of this process, and a
robust lock between processes, which the kernel frees when its holder dies (`robust_lock.py`). No
process waits for either longer than `WAIT_S`, but goes on without: a priority that stays old for a
moment does no harm, and a learner that is stopped while it holds the lock must not stop the others.
Sums that a killed holder left half done are repaired by the next holder (`sum_tree.py`).

`inserted` is the newest frame that has been given its first priority: learners find the same
transitions one after the other, and only the first of them inserts. Everything below `removed` is
gone. Both words are stored last, and the robust lock shows the next holder all that the dead one
stored: what a killed learner leaves half done is done again. The tree knows each leaf's owner, its
frame, which is stored before the leaf. A leaf of 0 has no owner. A change is ignored if it comes
too late: if its transition is gone, or its leaf has a newer owner.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

import numpy as np

from rtagent.clock import Clock
from rtagent.memory.arena import private_memory
from rtagent.memory.records import SharedRecord
from rtagent.memory.robust_lock import NoLock, RobustLock
from rtagent.memory.sum_tree import Doubles, Ints, SumTree, sum_tree

Found = TypeVar("Found")
Given = TypeVarTuple("Given")

CONTROL_BYTES = 64
WAIT_S = 0.05
"""Longest wait for the locks."""
RETRY_S = 0.0002
"""Sleep of a process that finds the robust lock taken: it is held for some 0.2 ms."""
AT_ONCE = 4096
"""Leaves inserted or removed while the locks are held once."""


class _Words(SharedRecord):
    inserted: int
    removed: int
    largest: float


class Priorities:
    """A sum tree with owners, for several processes and their threads.

    Args:
        buffer: `Priorities.size(leaves)` writable bytes, aligned to 8. Writer: the locks' holder.
        leaves: capacity of the frame ring.
        lock: of these priorities alone. One object of this class per process: the robust lock does
            not keep two of them apart.
        clock: measures the waiting, and sleeps.
    """

    def __init__(
        self, buffer: memoryview, leaves: int, lock: RobustLock | NoLock, clock: Clock
    ) -> None:
        self._words = _Words(buffer)
        self._tree = sum_tree(buffer[CONTROL_BYTES:], leaves)
        self._leaves, self._lock, self._clock = leaves, lock, clock
        self._threads = threading.Lock()

    @classmethod
    def private(cls, leaves: int, clock: Clock) -> Priorities:
        """Empty priorities that only this process uses."""
        memory = private_memory(cls.size(leaves))
        cls.format(memory)
        return cls(memory, leaves, NoLock(), clock)

    @staticmethod
    def size(leaves: int) -> int:
        """Bytes for that many leaves."""
        return CONTROL_BYTES + SumTree.size(leaves)

    @staticmethod
    def format(buffer: memoryview) -> None:
        """Make zeroed memory an empty tree, in which the first priority is 1."""
        words = _Words(buffer)
        words.inserted, words.largest = -1, 1.0

    @property
    def total(self) -> float:
        """Sum of all priorities. Without the locks: while others learn, it may be a little old."""
        return self._tree.total

    def advance(self, frames: Ints, oldest: int) -> bool:
        """Insert new transitions with the largest priority so far; remove those that are lost.

        Args:
            frames: (n,) in ascending order; those that a learner inserted before are left alone.
            oldest: transitions of older frames are lost.

        Returns:
            False if the locks could not be taken in time; then call again with the same.
        """
        while oldest > self._words.removed or (len(frames) and frames[-1] >= self._next()):
            if not self._locked(self._advance, frames, oldest):
                return False
        return True

    def draw(self, places: Doubles) -> tuple[Ints, Doubles] | None:
        """One transition from each of n equal parts of the sum of all priorities.

        Args:
            places: (n,) in [0, 1), where in its part each of them lies.

        Returns:
            Frames (n,) and priorities (n,); None if there is no transition, or if the locks could
            not be taken in time.
        """
        return self._locked(self._tree.draw, places)

    def update(self, frames: Ints, priorities: Doubles) -> bool:
        """Give transitions new priorities.

        Args:
            frames: (n,); those that are gone are ignored.
            priorities: (n,), above 0; those that are not finite are ignored.

        Returns:
            False if the locks could not be taken in time, and nothing was changed.
        """
        return self._locked(self._change, frames, priorities) or False

    def discard(self, frames: Ints) -> bool:
        """Remove transitions of which a frame is missing; ignores and returns as `update` does."""
        return self._locked(self._change, frames, np.zeros(len(frames))) or False

    def values(self, first: int, stop: int) -> Doubles:
        """The priorities of the transitions that begin with frames first <= k < stop.

        Returns:
            (stop - first,), 0 where there is none. Without the locks: while others learn, some may
            be old.
        """
        frames = np.arange(first, stop)
        slots, live = self._tree.live(frames)
        return np.where(live, self._tree.leaves[slots], 0.0)

    def restore(self, first: int, values: Doubles) -> None:
        """Put back what `values` gave, before anybody else uses the priorities.

        Args:
            first: frame of the first priority.
            values: (n,), n at most the number of leaves.
        """
        frames = first + np.flatnonzero(values > 0.0)
        self._words.removed = first
        if len(frames):
            slots = frames % self._leaves
            self._tree.owners[slots] = frames
            self._tree.set(slots, values[frames - first])
            self._words.largest = max(self._words.largest, values.max())
            self._words.inserted = frames[-1]

    def _locked(self, work: Callable[[*Given], Found], *given: *Given) -> Found | None:
        """Work under both locks, with right sums; None if the locks cannot be taken in time."""
        if not self._threads.acquire(timeout=WAIT_S):
            return None
        try:
            if not self._claim():
                return None
            try:
                self._tree.repair()
                return work(*given)
            finally:
                self._lock.leave()
        finally:
            self._threads.release()

    def _claim(self) -> bool:
        """Take the robust lock; False if it is held for longer than `WAIT_S`."""
        deadline = self._clock.now() + WAIT_S
        while not self._lock.try_enter():
            if (now := self._clock.now()) >= deadline:
                return False
            self._clock.sleep_until(now + RETRY_S)
        return True

    # ---- under the locks

    def _next(self) -> int:
        """The oldest frame that may still be inserted."""
        return max(self._words.inserted + 1, self._words.removed)

    def _advance(self, frames: Ints, oldest: int) -> bool:
        self._remove_below(oldest)
        self._insert(frames)
        return True

    def _change(self, frames: Ints, priorities: Doubles) -> bool:
        largest = self._tree.change(frames, priorities)
        self._words.largest = max(self._words.largest, largest)
        return True

    def _insert(self, frames: Ints) -> None:
        new = frames[np.searchsorted(frames, self._next()) :][:AT_ONCE]
        if len(new):
            slots = new % self._leaves
            self._tree.owners[slots] = new
            self._tree.set(slots, self._words.largest)
            self._words.inserted = new[-1]

    def _remove_below(self, oldest: int) -> None:
        start = max(self._words.removed, oldest - self._leaves)
        stop = min(oldest, start + AT_ONCE)
        if stop > start:
            slots = np.arange(start, stop) % self._leaves
            lost = (self._tree.leaves[slots] > 0.0) & (self._tree.owners[slots] < stop)
            self._tree.set(slots[lost], 0.0)
            self._words.removed = stop
