"""Turns: strict order among the living, a lease for the others, and one at a time always."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest

from rtagent.clock import NANO, MonotonicClock
from rtagent.memory.arena import Arena
from rtagent.memory.robust_lock import RobustLock
from rtagent.memory.turns import Turns, TurnTaker, successor
from tests.forked import Forked


class PassingClock:
    """Time passes by looking at it."""

    def __init__(self) -> None:
        self._now = 100.0

    def now(self) -> float:
        self._now += 0.005
        return self._now

    def sleep_until(self, when: float) -> None:
        self._now = max(self._now, when)


@dataclass
class Shared:
    """The words and the lock, and what the learners are told."""

    words: Arena
    lock: Arena
    ring: list[int] = field(default_factory=lambda: [0, 1, 2])
    order: str = "round-robin"
    progress_ns: dict[int, int] = field(default_factory=dict)
    lease_s: dict[int, float] = field(default_factory=dict)

    def turns(self) -> Turns:
        # No longer than they need: an arena is whole pages.
        words = memoryview(self.words.handle.map())[: Turns.size()]
        return Turns(words, RobustLock(self.lock.handle))

    def taker(
        self, turns: Turns, me: int, clock: object, beat: Callable[[], bool] = lambda: True
    ) -> TurnTaker:
        return TurnTaker(
            turns, me, clock,  # type: ignore[arg-type]
            ring=lambda: self.ring, order=lambda: self.order,
            lease_s=lambda index: self.lease_s.get(index, 1.0),
            progress_ns=lambda index: self.progress_ns.get(index, 0), beat=beat,
        )


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[Shared]:
    # The kernel sleeps in real time, whatever the clock.
    monkeypatch.setattr("rtagent.memory.turns.LOOK_S", 0.001)
    arenas = Arena("turns", Turns.size()), Arena("apply", 1)
    yield Shared(*arenas)
    for arena in arenas:
        arena.close()


@pytest.mark.parametrize(
    ("index", "ring", "wanted"),
    [(0, [0, 1, 2], 1), (2, [0, 1, 2], 0), (1, [0, 2], 2), (5, [0, 2], 0), (0, [0], 0), (3, [], 3)],
)
def test_successor(index: int, ring: list[int], wanted: int) -> None:
    assert successor(index, ring) == wanted


def test_the_order_is_strict(shared: Shared) -> None:
    turns, clock = shared.turns(), PassingClock()
    takers = [shared.taker(turns, me, clock) for me in range(3)]
    entered = []
    for _ in range(7):
        me = turns.holder
        assert takers[me].enter()
        entered.append(me)
        takers[me].leave()
    assert entered == [0, 1, 2, 0, 1, 2, 0]


def test_first_come_enters_whenever_the_lock_is_free(shared: Shared) -> None:
    shared.order = "first-come"
    turns = shared.turns()
    for me, holder in ((2, 0), (2, 0), (0, 1), (1, 2)):
        taker = shared.taker(turns, me, PassingClock())
        assert taker.enter()
        taker.leave()
        assert turns.holder == holder, "the turn of somebody else stays where it is"
    assert turns.expired == 0


def test_the_turn_is_passed_on_under_the_lock(shared: Shared) -> None:
    turns, holders = shared.turns(), []
    leave = turns.lock.leave

    def seen() -> None:
        holders.append(turns.holder)
        leave()

    turns.lock.leave = seen  # type: ignore[method-assign]
    taker = shared.taker(turns, 0, PassingClock())
    assert taker.enter()
    taker.leave()
    assert holders == [1]


def test_whoever_waits_for_the_turn_is_woken(shared: Shared) -> None:
    turns, rung = shared.turns(), []
    ring = turns._bell.ring

    def heard() -> None:
        rung.append(turns.holder)
        ring()

    turns._bell.ring = heard  # type: ignore[method-assign]
    turns.pass_on(0, shared.ring, 5.0)
    # Not before it is theirs.
    assert rung == [1]


def test_the_turn_of_one_that_has_left_is_its_successors(shared: Shared) -> None:
    turns = shared.turns()
    shared.ring = [1, 2]
    assert turns.holder == 0
    assert not turns.is_mine(2, shared.ring)
    taker = shared.taker(turns, 1, PassingClock())
    assert taker.enter()
    taker.leave()
    assert turns.holder == 2


def test_one_that_leaves_the_ring_in_its_turn_passes_it_on(shared: Shared) -> None:
    turns = shared.turns()
    taker = shared.taker(turns, 0, PassingClock())
    assert taker.enter()
    shared.ring = [1, 2]
    taker.leave()
    assert turns.holder == 1


@pytest.mark.parametrize(("holders", "waiters"), [(3.0, 0.5), (0.5, 3.0)])
def test_the_turn_of_one_that_makes_no_progress_is_handed_on_after_its_lease(
    shared: Shared, holders: float, waiters: float
) -> None:
    turns, clock = shared.turns(), PassingClock()
    shared.lease_s = {0: holders, 1: waiters}
    shared.progress_ns[0] = int(clock.now() * NANO)
    start = clock.now()
    taker = shared.taker(turns, 1, clock)
    assert taker.enter()
    assert holders < clock.now() - start < holders + 0.5
    assert turns.expired == 1
    taker.leave()
    assert turns.holder == 2


def test_a_lease_begins_with_the_turn(shared: Shared) -> None:
    turns, clock = shared.turns(), PassingClock()
    # The last progress lies long before the turn, as after a pause.
    turns.pass_on(2, shared.ring, clock.now())
    start = clock.now()
    assert shared.taker(turns, 1, clock).enter()
    assert 1.0 < clock.now() - start < 1.5


@pytest.mark.parametrize("left_beats", [True, False])
def test_the_successor_of_one_that_has_left_has_a_lease_of_its_own(
    shared: Shared, left_beats: bool
) -> None:
    """Learner 0 writes a checkpoint, and beats, or is dead; 1 computes, and is late or not."""
    turns, clock = shared.turns(), PassingClock()
    shared.ring = [1, 2]
    shared.progress_ns = {0: 1000 * NANO if left_beats else 0, 1: int(clock.now() * NANO)}
    start = clock.now()
    assert shared.taker(turns, 2, clock).enter()
    assert 1.0 < clock.now() - start < 1.5
    assert turns.expired == 1


def held_up_before_the_lock(
    shared: Shared, me: int, meanwhile: Callable[[Turns, PassingClock], None]
) -> tuple[Turns, bool]:
    """A learner has looked whose turn it is, and something happens before it has the lock.

    The turns after that, and whether it entered.
    """
    turns, clock, looks = shared.turns(), PassingClock(), []
    try_enter = turns.lock.try_enter

    def held_up() -> bool:
        if not looks:
            looks.append(clock.now())
            meanwhile(turns, clock)
        return try_enter()

    turns.lock.try_enter = held_up  # type: ignore[method-assign]
    entered = shared.taker(turns, me, clock, lambda: not looks).enter()
    assert looks, "it has not tried to take the lock"
    return turns, entered


def test_progress_before_the_lock_is_had_renews_the_lease(shared: Shared) -> None:
    def progress(turns: Turns, clock: PassingClock) -> None:
        shared.progress_ns[0] = int(clock.now() * NANO)

    turns, _ = held_up_before_the_lock(shared, 1, progress)
    assert (turns.holder, turns.expired) == (0, 0)


@pytest.mark.process
def test_a_turn_that_another_has_handed_on_meanwhile_stays_where_it_is(
    shared: Shared, is_free: Callable[[Arena], bool]
) -> None:
    def hand_on(turns: Turns, clock: PassingClock) -> None:
        turns.pass_on(1, shared.ring, clock.now(), expired=True)
        clock.sleep_until(clock.now() + 5.0)

    turns, _ = held_up_before_the_lock(shared, 1, hand_on)
    assert (turns.holder, turns.expired) == (2, 1)
    assert is_free(shared.lock)


@pytest.mark.process
def test_who_loses_the_turn_before_it_has_the_lock_does_not_enter(
    shared: Shared, is_free: Callable[[Arena], bool]
) -> None:
    def lose(turns: Turns, clock: PassingClock) -> None:
        turns.pass_on(0, shared.ring, clock.now(), expired=True)

    turns, entered = held_up_before_the_lock(shared, 0, lose)
    assert (turns.holder, entered) == (1, False)
    assert is_free(shared.lock)


def test_progress_renews_the_lease(shared: Shared) -> None:
    turns, clock, looks = shared.turns(), PassingClock(), []

    def beat() -> bool:
        shared.progress_ns[0] = int(clock.now() * NANO)
        looks.append(clock.now())
        return len(looks) < 200

    assert not shared.taker(turns, 1, clock, beat).enter()
    assert (turns.holder, turns.expired) == (0, 0)
    assert looks[-1] - looks[0] > 3.0


def test_one_that_is_no_longer_in_the_ring_gives_up(shared: Shared) -> None:
    shared.ring = [0, 2]
    assert not shared.taker(shared.turns(), 1, PassingClock()).enter()


@pytest.mark.process
def test_two_processes_alternate_and_never_overlap(shared: Shared, forked: Forked) -> None:
    log = Arena("log", 1 << 16)
    shared.ring = [0, 1]
    # Nobody loses its turn because it gets no core.
    shared.lease_s = {0: 60.0, 1: 60.0}

    def body(me: int) -> None:
        entries = np.frombuffer(memoryview(log.handle.map()), "<i8")
        taker = shared.taker(shared.turns(), me, MonotonicClock())
        for _ in range(200):
            assert taker.enter()
            at = int(entries[0])
            entries[at + 1] = me
            entries[0] = at + 1
            taker.leave()

    pids = [forked.start(lambda: body(0)), forked.start(lambda: body(1))]
    assert [forked.wait(pid) for pid in pids] == [0, 0]
    entries = np.frombuffer(memoryview(log.handle.map()), "<i8")
    assert entries[0] == 400
    assert entries[1:401].tolist() == [0, 1] * 200
    log.close()


@pytest.mark.process
@pytest.mark.parametrize("inside", [True, False])
def test_one_killed_in_its_turn_stops_nobody(shared: Shared, forked: Forked, inside: bool) -> None:
    shared.ring = [0, 1]

    def body(ready: Callable[[], object]) -> None:
        taker = shared.taker(shared.turns(), 0, MonotonicClock())
        if inside:
            taker.enter()
        ready()
        time.sleep(60)

    forked.kill(forked.start_ready(body))
    clock, turns = MonotonicClock(), shared.turns()
    start = clock.now()
    shared.progress_ns[0] = int(start * NANO)
    taker = shared.taker(turns, 1, clock)
    assert taker.enter()
    # After the lease of a second: nobody takes the dead one out of the ring here.
    assert clock.now() - start < 10.0
    taker.leave()


@pytest.mark.process
def test_the_lock_without_the_turn_is_free_after_a_body_that_raises(
    shared: Shared, is_free: Callable[[Arena], bool]
) -> None:
    turns, clock = shared.turns(), MonotonicClock()
    with turns.hold(clock, lambda: None):
        assert not is_free(shared.lock)
    assert is_free(shared.lock)
    with pytest.raises(ZeroDivisionError), turns.hold(clock, lambda: None):
        _ = 1 / 0
    assert is_free(shared.lock)
    with pytest.raises(ZeroDivisionError), shared.taker(turns, 0, clock).hold():
        _ = 1 / 0
    assert is_free(shared.lock)
    assert turns.holder == 0


@pytest.mark.process
def test_who_finds_the_lock_taken_beats_while_it_waits(shared: Shared, forked: Forked) -> None:
    turns, clock, beats = shared.turns(), PassingClock(), []

    def body(ready: Callable[[], object]) -> None:
        assert shared.turns().lock.try_enter()
        ready()
        time.sleep(60)

    holder = forked.start_ready(body)

    def beat() -> None:
        beats.append(clock.now())
        if len(beats) == 5:
            forked.kill(holder)

    with turns.hold(clock, beat):
        pass
    assert len(beats) >= 5
