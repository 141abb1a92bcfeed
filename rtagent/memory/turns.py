"""Whose turn it is to apply a gradient.

Why it is correct. Two things are kept apart. The *apply lock* (an `fcntl` record lock, see
`robust_lock.py`) is exclusion: one learner at a time writes the shared state, the horizon and the
words of this module, and a learner killed inside releases it by dying. The *turn* is order: in
round-robin a learner enters only when `holder` names it, and passes the turn on before it leaves.
The turn of a learner that has left the ring belongs to its successor at once. The turn of one that
makes no progress goes to the next when its lease is over; should the late one wake up, it finds
that it is not its turn, and waits. A learner that is stopped *inside* the lock cannot be passed
over without two writers: the supervisor kills it for its silence, which frees the lock.
Nobody waits in the kernel for the lock: whoever finds it taken sleeps a moment, beats, and looks
again. `holder` is one 8-byte word; the bell wakes those who wait for it to change. What is read
without the lock only says when to try: every decision is taken anew under it, and the lock orders
what is read there (`robust_lock.py`), on ARM64, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from rtagent.clock import NANO, Clock
from rtagent.memory.records import WORD, SharedRecord
from rtagent.memory.robust_lock import RobustLock
from rtagent.memory.wakeup import Doorbell

LOOK_S = 0.02
"""Longest sleep of a learner that waits for its turn."""
LEASE_UPDATES = 4
RETRY_S = 0.0002
"""Sleep of a learner that finds the lock taken: an update is applied in about a millisecond."""


def lease_s(least_s: float, update_ns: int) -> float:
    """Seconds of a turn's lease: at least so many, and some updates of its holder."""
    return max(least_s, LEASE_UPDATES * update_ns / NANO)


class Turns(SharedRecord, behind=WORD):
    """Whose turn it is, in shared words.

    Args:
        buffer: `Turns.size()` writable bytes.
        lock: the apply lock.

    Attributes:
        holder: the learner whose turn it is.
        granted_ns: when it became its turn, monotonic nanoseconds.
        expired: turns that were handed on because their lease was over.
    """

    holder: int
    granted_ns: int
    expired: int

    def __init__(self, buffer: memoryview, lock: RobustLock) -> None:
        super().__init__(buffer)
        self._bell = Doorbell(self._rest, 0)
        self.lock = lock

    def whose(self, ring: Sequence[int]) -> int:
        """The learner of a ring whose turn it is, in round-robin order."""
        holder = self.holder
        return holder if holder in ring else successor(holder, ring)

    def is_mine(self, me: int, ring: Sequence[int]) -> bool:
        """Whether learner `me` may enter in round-robin order of a ring."""
        return self.whose(ring) == me

    def pass_on(
        self, after: int, ring: Sequence[int], now: float, *, expired: bool = False
    ) -> None:
        """Give the turn to the successor of learner `after`, at `now` seconds. Under the lock only.

        `expired`: that learner loses its turn because its lease is over.
        """
        self.granted_ns = int(now * NANO)
        self.expired += expired
        self.holder = successor(after, ring)
        self._bell.ring()

    @contextmanager
    def hold(self, clock: Clock, beat: Callable[[], object]) -> Iterator[None]:
        """The lock without the turn, for what must not happen beside an update; beats meanwhile."""
        while not self.lock.try_enter():
            beat()
            clock.sleep_until(clock.now() + RETRY_S)
        try:
            yield
        finally:
            self.lock.leave()

    def wait_for_change(self, holder: int, clock: Clock) -> None:
        """Sleep until the turn is no longer `holder`'s, at most `LOOK_S`."""
        self._bell.wait_for(lambda: self.holder != holder, clock, LOOK_S)


class TurnTaker:
    """One learner's way into the lock.

    Args:
        turns: the shared words.
        me: this learner's index.
        clock: time.
        ring: the learners that take turns now.
        order: round-robin or first-come, as it is now.
        lease_s: given a learner, seconds without progress after which it loses its turn.
        progress_ns: given a learner, when it last made progress, monotonic nanoseconds.
        beat: called while waiting; returns whether to go on.
    """

    def __init__(
        self, turns: Turns, me: int, clock: Clock, *, ring: Callable[[], Sequence[int]],
        order: Callable[[], str], lease_s: Callable[[int], float],
        progress_ns: Callable[[int], int], beat: Callable[[], bool],
    ) -> None:
        self._turns, self._me, self._clock = turns, me, clock
        self._ring, self._order, self._beat = ring, order, beat
        self._lease_s, self._progress_ns = lease_s, progress_ns

    def enter(self) -> bool:
        """Wait for the turn and take the lock; False if told to stop, or out of the ring.

        After True, call `leave`.
        """
        while self._beat() and self._me in self._ring():
            holder, late = self._turns.holder, self._turns.whose(self._ring())
            if self._may_enter():
                if not self._turns.lock.try_enter():
                    self._clock.sleep_until(self._clock.now() + RETRY_S)
                elif self._may_enter():
                    return True
                else:
                    self._turns.lock.leave()
            elif self._overdue(late):
                self._hand_on(late)
            else:
                self._turns.wait_for_change(holder, self._clock)
        return False

    def leave(self) -> None:
        """Pass the turn on, and release the lock."""
        ring = self._ring()
        if self._turns.holder == self._me or self._turns.is_mine(self._me, ring):
            self._turns.pass_on(self._me, ring or [self._me], self._clock.now())
        self._turns.lock.leave()

    def hold(self) -> AbstractContextManager[None]:
        """The lock without the turn: for what must not happen beside an update."""
        return self._turns.hold(self._clock, self._beat)

    def _may_enter(self) -> bool:
        return self._order() == "first-come" or self._turns.is_mine(self._me, self._ring())

    def _overdue(self, whose: int) -> bool:
        since = max(self._turns.granted_ns, self._progress_ns(whose)) / NANO
        return self._clock.now() - since > self._lease_s(whose)

    def _hand_on(self, late: int) -> None:
        if not self._turns.lock.try_enter():
            self._clock.sleep_until(self._clock.now() + RETRY_S)
            return
        # Meanwhile another learner may have handed it on.
        ring = self._ring()
        if self._turns.is_mine(late, ring) and self._overdue(late):
            self._turns.pass_on(late, ring, self._clock.now(), expired=True)
        self._turns.lock.leave()


def successor(index: int, ring: Sequence[int]) -> int:
    """The next learner after `index` in a ring that may not contain it."""
    later = [each for each in ring if each > index]
    return min(later) if later else min(ring, default=index)
