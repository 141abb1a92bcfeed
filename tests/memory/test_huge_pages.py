"""Which pages are joined: those whose frames are all kept, and of no interest to who acts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtagent.memory import huge_pages
from rtagent.memory.huge_pages import PageJoiner
from rtagent.memory.ring import CONTROL_BYTES, Ring
from rtagent.memory.ring_memory import SlotArray

HUGE = 64
PATIENCE = 10_000


class Recorded:
    """Stands for an arena: which pages were joined."""

    def __init__(self) -> None:
        self.can_join = True
        self.pages: list[int] = []

    def join(self, start: int) -> None:
        assert start % HUGE == 0
        self.pages.append(start // HUGE)


class Machine:
    """A ring, a writer, and a joiner with pages of 64 bytes."""

    def __init__(self, capacity: int, start: int, item_bytes: int, settled: int) -> None:
        self.arena = Recorded()
        self.ring = Ring(memoryview(np.zeros(CONTROL_BYTES + 8, np.uint8)), capacity)
        self.ring.begin(-1, 0)
        self.start, self.item_bytes, self.settled = start, item_bytes, settled
        frames = SlotArray(self.arena, start, item_bytes)  # type: ignore[arg-type]
        self.joiner = PageJoiner(self.ring, frames, settled)

    def ticks_of(self, page: int) -> list[int] | None:
        """The newest ticks in a page's slots; none if it is not all of frames."""
        slots = range(
            (page * HUGE - self.start) // self.item_bytes,
            ((page + 1) * HUGE - 1 - self.start) // self.item_bytes + 1,
        )
        if slots.start < 0 or slots.stop > self.ring.capacity or page * HUGE < self.start:
            return None
        newest, capacity = self.ring.newest, self.ring.capacity
        return [newest - (newest - slot) % capacity for slot in slots]

    def may_be_joined(self, page: int) -> bool:
        ticks = self.ticks_of(page)
        return ticks is not None and all(
            max(0, self.ring.floor) <= tick <= self.ring.newest - self.settled for tick in ticks
        )

    def advance(self, ticks: int, floor: int) -> None:
        newest = self.ring.newest + ticks
        self.ring.begin(newest, max(self.ring.floor, min(floor, newest)))

    def join_all(self) -> list[int]:
        before = len(self.arena.pages)
        for _ in range(PATIENCE):
            if not self.joiner.join_next():
                return self.arena.pages[before:]
            assert self.may_be_joined(self.arena.pages[-1])
        raise AssertionError("never ends")


@pytest.fixture(autouse=True)
def _small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huge_pages, "HUGE_PAGE", HUGE)


@given(
    st.integers(1, 60), st.integers(0, 200), st.integers(1, 150), st.integers(1, 8),
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 30)), min_size=1, max_size=20),
)
def test_no_page_is_joined_that_acting_touches_or_that_has_a_hole(
    capacity: int, start: int, item_bytes: int, settled: int, moves: list[tuple[int, int]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(huge_pages, "HUGE_PAGE", HUGE)
        machine = Machine(capacity, start, item_bytes, settled)
        for ticks, behind in moves:
            machine.advance(ticks, machine.ring.newest + ticks - behind)
            machine.join_all()


@pytest.mark.parametrize("item_bytes", [1, 7, 48, 64])
def test_every_page_of_a_ring_is_joined_once_in_a_lap(item_bytes: int) -> None:
    capacity, settled = 400, 4
    machine = Machine(capacity, 100, item_bytes, settled)
    all_pages = {page for page in range(500) if machine.ticks_of(page) is not None}
    joined: list[int] = []
    for _ in range(capacity + settled + 1):
        machine.advance(1, 0)
        joined += machine.join_all()
    assert len(joined) == len(set(joined))
    assert set(joined) == all_pages


def test_a_restored_replay_is_joined_too() -> None:
    machine = Machine(1000, 0, 16, 10)
    # Whoever restores it tells the ring, long after the joiner was made.
    machine.ring.begin(899, 100)
    # Frames 100 to 889: the bytes from 1600 to 14240.
    assert machine.join_all() == list(range(25, 222))


def test_who_cannot_is_not_asked() -> None:
    machine = Machine(100, 0, 16, 1)
    machine.advance(100, 0)
    machine.arena.can_join = False
    assert not machine.joiner.join_next()
    assert machine.arena.pages == []
