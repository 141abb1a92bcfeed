"""The learner's memory of frames agrees with what the buffer node believes of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtagent.cluster.frame_cache import SentFrames
from rtagent.cluster.message import unpack
from rtagent.cluster.node import Settings
from rtagent.memory.frames import FrameRing
from tests.cluster.edge import Edge

CAPACITY = 40
SLOTS = 16


@pytest.mark.parametrize("kept", [SLOTS, CAPACITY])
@settings(max_examples=60)
@given(messages=st.lists(
    st.tuples(st.integers(0, 30), st.sets(st.integers(0, 12), min_size=1, max_size=12)),
    min_size=1, max_size=25,
))
def test_every_slot_holds_the_frame_that_is_expected_there(
    kept: int, messages: list[tuple[int, set[int]]],
) -> None:
    sent, store = SentFrames(kept, CAPACITY), np.zeros(kept, np.int64)
    oldest = 0
    for step, chosen in messages:
        # The world goes on: numbers grow, and those that the ring has lost are not chosen.
        oldest += step
        numbers = np.array(sorted(oldest + each for each in chosen))
        expected = sent.holds(numbers)
        slots, new = sent.place(numbers)
        assert (new == ~expected).all()
        assert len(set(slots.tolist())) == len(numbers)
        store[slots[new]] = numbers[new]
        np.testing.assert_array_equal(store[slots], numbers)


def test_with_room_for_the_whole_ring_no_frame_travels_twice() -> None:
    sent, rng = SentFrames(CAPACITY, CAPACITY), np.random.default_rng(0)
    travelled: list[int] = []
    for newest in range(CAPACITY, 10 * CAPACITY):
        numbers = np.unique(rng.integers(newest - CAPACITY + 1, newest + 1, 12))
        travelled.extend(numbers[sent.place(numbers)[1]].tolist())
    assert len(travelled) == len(set(travelled))


def test_a_share_that_the_ring_lost_while_it_was_made_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = Edge(slots=512, stack=2, episode=7).play(100)
    learner, read = np.zeros((512, 3), np.float32), FrameRing.read
    lost = 0

    def losing(self: FrameRing, *args: Any) -> Any:
        frames, starts, whole = read(self, *args)
        nonlocal lost
        lost -= 1
        if lost >= 0:
            # What was overwritten meanwhile.
            frames[:1], whole[:1] = np.nan, False
        return frames, starts, whole

    monkeypatch.setattr(FrameRing, "read", losing)
    for seq, lost in enumerate((3, 2)):
        sent = world.node.make(8, Settings(8, 1e-3, 0.5))
        assert (sent.seq, lost) == (seq, -1)
        assert world.node.counts.shipped == 8 * (seq + 1)
        # States and successors of two frames each.
        assert sent.unpacked_bytes == 8 * 4 * world.frames.frames[0].nbytes
        message = unpack(sent.block).arrays
        learner[message["new_slots"]] = message["new_frames"]
        newest = learner[message["slots"]][:, 1, 0] * 100
        np.testing.assert_allclose(newest, sent.frames, atol=1e-3)


def test_the_oldest_make_room() -> None:
    sent = SentFrames(4, CAPACITY)
    sent.place(np.array([0, 1, 2, 3]))
    sent.place(np.array([4, 5]))
    np.testing.assert_array_equal(sent.holds(np.arange(6)), [False, False, True, True, True, True])
