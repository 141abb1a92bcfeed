"""Memory behind the rings: what is kept is there, what is given up goes back, to the page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtagent.errors import UserError
from rtagent.memory import ring_memory
from rtagent.memory.arena import PAGE, Arena
from rtagent.memory.ring import CONTROL_BYTES, GUARD_TICKS, RingBounds
from rtagent.memory.ring_memory import RingMemory, SlotArray

PATIENCE = 10_000
PLENTY = 1 << 40


class Machine:
    """Two arenas as of frames and ledger, a writer that marks its slots, and the books."""

    def __init__(
        self, capacity: int, first_sizes: tuple[int, ...], second_size: int, first_tick: int = 0
    ) -> None:
        self.capacity = capacity
        self.first_tick = first_tick
        self.arrays: list[SlotArray] = []
        self.arenas: list[Arena] = []
        self.memories: dict[int, np.ndarray] = {}
        for sizes in (first_sizes, (second_size,)):
            arena = Arena("test", CONTROL_BYTES + capacity * sum(sizes), sparse=True)
            arena.reserve(0, PAGE)
            start = CONTROL_BYTES
            for size in sizes:
                self.arrays.append(SlotArray(arena, start, size))
                start += capacity * size
            self.arenas.append(arena)
            self.memories[id(arena)] = np.frombuffer(arena.handle.map(), np.uint8)
        self.rings = [
            RingBounds(memoryview(self.memories[id(arena)]), capacity) for arena in self.arenas
        ]
        for ring in self.rings:
            ring.begin(first_tick - 1, first_tick)
        self.books = RingMemory(self.rings, self.arrays, capacity, first_tick)

    @property
    def newest(self) -> int:
        return self.rings[0].newest

    @property
    def floor(self) -> int:
        return self.rings[0].floor

    @property
    def held(self) -> int:
        return sum(arena.held for arena in self.arenas)

    def slots(self, array: SlotArray) -> np.ndarray:
        memory = self.memories[id(array.arena)]
        stop = array.start + self.capacity * array.item_bytes
        return memory[array.start : stop].reshape(self.capacity, array.item_bytes)

    def write(self, ticks: int) -> None:
        """Whole items first, their number last."""
        numbers = np.arange(self.newest + 1, self.newest + 1 + ticks)
        for array in self.arrays:
            self.slots(array)[numbers % self.capacity] = (1 + numbers % 251)[:, None]
        for ring in self.rings:
            ring.begin(self.newest + ticks if ring is self.rings[0] else self.newest, ring.floor)

    def check_contents(self) -> None:
        oldest = max(self.first_tick, self.floor, self.newest - self.capacity + 1)
        numbers = np.arange(oldest, self.newest + 1)
        for array in self.arrays:
            found = self.slots(array)[numbers % self.capacity]
            assert (found == (1 + numbers % 251)[:, None]).all()

    def check(self, ahead: int) -> None:
        """Contents, and what the kernel holds, against every page looked at by itself."""
        self.check_contents()
        needed = allowed = 0
        kept = np.arange(self.floor, self.newest + 1 + ahead)[-self.capacity :]
        wanted = np.zeros(self.capacity, bool)
        wanted[kept % self.capacity] = True
        for arena in self.arenas:
            used = np.zeros(arena.size, bool)
            used[:CONTROL_BYTES] = True
            given_up = np.zeros(arena.size, bool)
            for array in self.arrays:
                if array.arena is arena:
                    stop = array.start + self.capacity * array.item_bytes
                    used[array.start : stop] = np.repeat(wanted, array.item_bytes)
                    given_up[array.start : stop] = np.repeat(~wanted, array.item_bytes)
            needed += int(used.reshape(-1, PAGE).any(axis=1).sum())
            allowed += int((~given_up.reshape(-1, PAGE)).any(axis=1).sum())
        # A page where two arrays or both ends of a ring meet, all given up, need not go.
        allowed += 2 * len(self.arrays)
        assert needed * PAGE <= self.held <= allowed * PAGE

    def settle(self, limit: int, ahead: int, budget: int) -> None:
        for _ in range(PATIENCE):
            if self.books.maintain(self.newest, limit, ahead, budget):
                return
            self.check_contents()
        raise AssertionError("never settles")


@contextmanager
def machine(
    capacity: int = 3000, first: tuple[int, ...] = (8, 8, 700), second: int = 64, tick: int = 0,
    filled: int = 0,
) -> Iterator[Machine]:
    made = Machine(capacity, first, second, tick)
    try:
        if filled:
            made.settle(capacity, filled, PLENTY)
            made.write(filled)
        yield made
    finally:
        for arena in made.arenas:
            arena.close()


SIZES = st.sampled_from((8, 64, 700, 2048, PAGE, 5000))


@settings(max_examples=20)
@given(
    capacity=st.integers(40, 900),
    sizes=st.tuples(SIZES, SIZES, SIZES),
    first_tick=st.sampled_from((0, 0, 5, 1234)),
    steps=st.lists(
        st.tuples(st.floats(0, 1), st.floats(0.01, 1), st.floats(0.03, 0.4), st.booleans()),
        min_size=1, max_size=25,
    ),
)
def test_any_life_of_a_ring(
    capacity: int, sizes: tuple[int, int, int], first_tick: int,
    steps: list[tuple[float, float, float, bool]],
) -> None:
    with machine(capacity, sizes[:2], sizes[2], first_tick) as ring:
        for advance, kept, reserve, slowly in steps:
            limit, ahead = max(1, round(kept * capacity)), max(1, round(reserve * capacity))
            ahead = max(ahead, GUARD_TICKS + 1)
            ring.settle(limit, ahead, 3 * PAGE if slowly else PLENTY)
            assert ring.floor >= ring.newest - limit + 1
            assert ring.rings[0].floor == ring.rings[1].floor
            ring.check(max(ahead, ring.books._high - ring.newest - 1))
            held = ring.held
            ring.write(round(advance * ahead))
            # The writer finds memory wherever it goes.
            assert ring.held == held
            ring.check_contents()


def test_unlimited_ring_fills_once_and_then_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    with machine() as ring:
        grown = []
        while ring.newest < 2 * ring.capacity:
            assert ring.books.maintain(ring.newest, ring.capacity, 100, PLENTY)
            grown.append(ring.held)
            ring.write(50)
        size = sum(arena.size for arena in ring.arenas)
        assert grown[0] < size / 10
        assert grown[30] < 0.6 * size
        assert grown[-40] == grown[-1] == ring.held == size
        ring.check_contents()
        for arena in ring.arenas:
            monkeypatch.setattr(arena, "reserve", pytest.fail)
            monkeypatch.setattr(arena, "punch", pytest.fail)
        assert ring.books.maintain(ring.newest, ring.capacity, 100, PLENTY)


@pytest.mark.parametrize("size", [700, 5000])
def test_shrinks_at_once_and_grows_as_it_fills(size: int) -> None:
    with machine(first=(8, 8, size)) as ring:

        def go_on(ticks: int) -> None:
            held = ring.held
            ring.write(ticks)
            assert ring.held == held, "the writer met a hole"

        for _ in range(80):
            assert ring.books.maintain(ring.newest, ring.capacity, 100, PLENTY)
            go_on(50)
        assert ring.books.maintain(ring.newest, ring.capacity, 100, PLENTY)
        full = ring.held
        assert ring.books.maintain(ring.newest, 1000, 100, PLENTY)
        assert ring.floor == ring.newest - 999
        # The writer's next slots, and the ends that share a page with something kept.
        assert abs(ring.held - full * 1100 / 3000) < 10 * PAGE
        shrunk, floor = ring.held, ring.floor
        for _ in range(19):
            go_on(100)
            assert ring.books.maintain(ring.newest, ring.capacity, 100, PLENTY)
            assert ring.floor == floor
            ring.check_contents()
        assert shrunk < ring.held <= full
        for _ in range(20):
            go_on(100)
            assert ring.books.maintain(ring.newest, ring.capacity, 100, PLENTY)
        assert ring.held == full


def test_a_call_does_no_more_than_its_budget() -> None:
    with machine() as ring:
        assert not ring.books.maintain(-1, 3000, 2000, 100 * PAGE)
        assert 0 < ring.held <= 108 * PAGE
        for _ in range(10):
            ring.settle(3000, 2000, 100 * PAGE)
            ring.write(2000)
        ring.settle(3000, 100, PLENTY)
        before, steps = ring.held, 0
        while not ring.books.maintain(ring.newest, 10, 100, 50 * PAGE):
            assert 0 < before - ring.held <= 54 * PAGE
            before, steps = ring.held, steps + 1
        assert 5 < steps < 15


def test_restored_ticks_have_memory_and_lose_it_in_their_turn() -> None:
    with machine(tick=10_000) as ring:
        ring.settle(3000, 100, PLENTY)
        # As a restored replay leaves it: written behind the first tick, then begun.
        for each in ring.rings:
            each.begin(10_000 - 1 - 1200, 10_000 - 1200)
        ring.first_tick = 10_000 - 1200
        ring.write(1200)
        ring.settle(3000, 100, PLENTY)
        ring.check(100)
        ring.settle(400, 100, PLENTY)
        ring.check(100)


def test_pages_that_readers_bring_back_go_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring_memory, "SURPLUS_BYTES", 30 * PAGE)
    with machine(filled=2900) as ring:
        ring.settle(300, 100, PLENTY)
        held = ring.held
        slots = ring.slots(ring.arrays[2])
        assert slots[500:600].max() == 0
        assert ring.held > held + 10 * PAGE
        brought = ring.held
        ring.settle(300, 100, PLENTY)
        assert ring.held == brought, "not worth while yet"
        assert slots[800:1200].max() == 0
        ring.settle(300, 100, 20 * PAGE)
        assert ring.held == held
        ring.check_contents()
        # The writer, who goes on, makes no difference.
        assert slots[800:1200].max() == 0
        for _ in range(10):
            ring.write(20)
            ring.books.maintain(ring.newest, 300, 100, PLENTY)
        assert abs(ring.held - held) < 4 * PAGE


def test_slots_that_are_due_to_be_punched_again_are_reserved_for_the_writer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Readers have brought pages back, and the limit rises before they are punched once more."""
    monkeypatch.setattr(ring_memory, "SURPLUS_BYTES", 2 * PAGE)
    with machine(filled=2900) as ring:
        ring.settle(2800, 100, PLENTY)
        dead = ring.floor - 100
        assert ring.slots(ring.arrays[2])[dead + 10 : dead + 50].max() == 0
        assert not ring.books.maintain(ring.newest, 2800, 100, PLENTY)
        ring.write(100)
        ring.settle(2900, 100, PLENTY)
        held = ring.held
        ring.write(100)
        assert ring.held == held


def test_pages_that_the_kernel_does_not_return_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring_memory, "SURPLUS_BYTES", 30 * PAGE)
    with machine(filled=2900) as ring:
        full = ring.held
        with monkeypatch.context() as stuck:
            for arena in ring.arenas:
                stuck.setattr(arena, "punch", lambda start, stop: None)
            ring.settle(300, 100, 20 * PAGE)
        assert ring.held >= full
        for _ in range(32):
            ring.write(100)
            ring.settle(300, 100, PLENTY)
        ring.check(100)


def test_nothing_is_punched_near_the_writer() -> None:
    """The owner was held up, and the writer has used up the reserve meanwhile."""
    with machine(filled=2900) as ring:
        ring.settle(3000, 100, PLENTY)
        seen = ring.newest
        ring.write(101 - GUARD_TICKS)
        assert not ring.books.maintain(seen, 100, 100, PLENTY)
        ring.check_contents()
        ring.settle(100, 100, PLENTY)
        ring.check(100)


def test_without_memory_what_is_given_up_is_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    with machine() as ring:
        ring.settle(3000, 1000, PLENTY)
        ring.write(1000)
        full = ring.held

        def refuse(start: int, stop: int) -> None:
            raise UserError("no memory")

        for arena in ring.arenas:
            monkeypatch.setattr(arena, "reserve", refuse)
        for _ in range(3):
            with pytest.raises(UserError, match="no memory"):
                ring.books.maintain(ring.newest, 100, 100, PLENTY)
            ring.check_contents()
            # Whatever the writer reaches now it has to find by itself.
            ring.write(30)
        assert ring.held < full / 2
        monkeypatch.undo()
        ring.settle(100, 100, PLENTY)
        ring.check(100)


def test_owner_held_up_for_more_than_a_lap(monkeypatch: pytest.MonkeyPatch) -> None:
    with machine() as ring:
        ring.settle(3000, 100, PLENTY)
        for _ in range(10):
            ring.write(700)
        reserved = 0

        def note(start: int, stop: int) -> None:
            nonlocal reserved
            reserved += stop - start

        for arena in ring.arenas:
            monkeypatch.setattr(arena, "reserve", note)
        ring.settle(3000, 100, PLENTY)
        assert reserved <= sum(arena.size for arena in ring.arenas)
        monkeypatch.undo()
        ring.check_contents()
        ring.settle(500, 100, 40 * PAGE)
        ring.check(100)


def test_owner_held_up_in_a_shrunk_ring() -> None:
    """The writer has found memory by itself where the ring had given it up."""
    with machine(filled=2900) as ring:
        ring.settle(300, 100, PLENTY)
        for _ in range(7):
            ring.write(700)
        held = ring.held
        # What lies between the old reserve and the writer is given up already.
        while not ring.books.maintain(ring.newest, 300, 100, 40 * PAGE):
            assert ring.held < held + 10 * PAGE
            held = ring.held
        ring.check(100)
        ring.settle(3000, 100, 40 * PAGE)
        ring.check(100)
