"""The frame ring: the right frames in the right order, or none at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rtagent.memory.blueprint import Blueprint
from rtagent.memory.frames import FrameRing
from rtagent.memory.ring import GUARD_TICKS
from tests.conftest import make_blueprint
from tests.memory.structures import RING_CODES

CAPACITY = 32
Images = Callable[..., list[bytes]]
Shared = Callable[[int], memoryview]


def picture(number: int, shape: tuple[int, ...] = (6, 5)) -> np.ndarray:
    return np.full(shape, number % 251, np.uint8)


def fill(ring: FrameRing, count: int) -> None:
    for number in range(count):
        ring.publish(number, picture(number), 0)


def observe(ring: FrameRing, number: int) -> list[int] | None:
    """What the stack that ends with a frame shows; none if it cannot be had."""
    out = np.zeros((4, 6, 5), np.uint8)
    if not ring.observation(number, out):
        return None
    assert (out == out[:, :1, :1]).all()
    return [int(frame.flat[0]) for frame in out]


@pytest.fixture
def memory(shared: Shared, blueprint: Blueprint) -> memoryview:
    found = shared(FrameRing.size(blueprint, CAPACITY))
    FrameRing.format(found)
    return found


@pytest.fixture
def ring(memory: memoryview, blueprint: Blueprint) -> FrameRing:
    return FrameRing(memory, blueprint, CAPACITY)


def test_empty_ring_has_nothing(ring: FrameRing) -> None:
    assert ring.newest == -1
    assert ring.oldest == 0
    for number in (-1, 0, 1, CAPACITY):
        assert observe(ring, number) is None
        assert ring.frame(number) is None


def test_stack_is_clamped_at_the_start_of_the_episode(ring: FrameRing) -> None:
    for number in range(10):
        ring.publish(number, picture(number), 0 if number < 6 else 6)
    assert observe(ring, 0) == [0, 0, 0, 0]
    assert observe(ring, 2) == [0, 0, 1, 2]
    assert observe(ring, 5) == [2, 3, 4, 5]
    assert observe(ring, 6) == [6, 6, 6, 6]
    assert observe(ring, 8) == [6, 6, 7, 8]
    assert observe(ring, 9) == [6, 7, 8, 9]
    assert observe(ring, 10) is None


def test_wraps_around(ring: FrameRing) -> None:
    newest = 3 * CAPACITY + 1
    fill(ring, newest + 1)
    assert ring.newest == newest
    assert ring.oldest == newest - CAPACITY + 1 + GUARD_TICKS
    # This stack lies on both sides of the seam.
    assert observe(ring, newest) == [newest - 3, newest - 2, newest - 1, newest]
    first = newest - CAPACITY + 1
    assert observe(ring, first + 3) == [first, first + 1, first + 2, first + 3]
    assert observe(ring, first + 2) is None
    assert ring.frame(first) is not None
    assert ring.frame(first - 1) is None


def test_below_the_floor_there_is_nothing(ring: FrameRing) -> None:
    for number in range(20):
        ring.publish(number, picture(number), 0 if number < 12 else 12)
    ring.raise_floor(10)
    assert (ring.floor, ring.oldest) == (10, 10)
    assert ring.frame(9) is None
    assert ring.frame(10) is not None
    # A stack needs all of its frames; the start of an episode makes it shorter.
    assert [observe(ring, number) is not None for number in range(20)] == [
        number >= 12 for number in range(20)
    ]
    ring.raise_floor(14)
    assert observe(ring, 13) is observe(ring, 16) is None
    assert observe(ring, 17) == [14, 15, 16, 17]


def test_floor_only_grows(ring: FrameRing) -> None:
    ring.raise_floor(-3)
    assert ring.oldest == ring.floor == 0
    ring.raise_floor(7)
    ring.raise_floor(5)
    assert ring.oldest == ring.floor == 7


def test_floor_and_guard_both_hold(ring: FrameRing) -> None:
    fill(ring, 2 * CAPACITY)
    guarded = CAPACITY + GUARD_TICKS
    assert ring.oldest == guarded
    ring.raise_floor(guarded - 1)
    assert ring.oldest == guarded
    ring.raise_floor(guarded + 1)
    assert ring.oldest == guarded + 1


def test_floor_is_shared(ring: FrameRing, memory: memoryview, blueprint: Blueprint) -> None:
    ring.publish(3, picture(3), 3)
    FrameRing(memory, blueprint, CAPACITY).raise_floor(4)
    assert ring.floor == 4
    assert ring.frame(3) is None
    # Beside the bell, which is rung with every frame.
    ring.publish(4, picture(4), 4)
    assert ring.floor == 4


def test_begins_with_restored_frames(ring: FrameRing) -> None:
    restored = range(90, 110)
    for number in restored:
        slot = number % CAPACITY
        ring.frames[slot] = picture(number)
        ring.stamps[slot], ring.episode_starts[slot] = number, 85
    ring.begin(109, 90)
    assert observe(ring, 100) == [97, 98, 99, 100]
    assert (ring.newest, ring.oldest) == (109, 90)
    assert observe(ring, 92) is None
    assert observe(ring, 93) == [90, 91, 92, 93]
    ring.publish(110, picture(110), 110)
    assert observe(ring, 110) == [110] * 4


def test_another_process_sees_it(ring: FrameRing, memory: memoryview, blueprint: Blueprint) -> None:
    other = FrameRing(memory, blueprint, CAPACITY)
    ring.publish(0, picture(7), 0)
    assert other.newest == 0
    frame = other.frame(0)
    assert (frame == 7).all()
    ring.publish(CAPACITY, picture(8), 0)
    assert (frame == 7).all()


@pytest.mark.parametrize("overwritten", [20, 21, 22, 23])
def test_frame_overwritten_during_the_copy(
    ring: FrameRing, overwritten: int, overtaken: Any
) -> None:
    fill(ring, CAPACITY)
    frames = ring.frames

    def overwrite() -> None:
        slot = overwritten % CAPACITY
        frames[slot] = 200
        ring.stamps[slot] = overwritten + CAPACITY

    ring.frames = overtaken(frames, overwrite)
    assert observe(ring, 23) is None


@pytest.mark.parametrize(("floor", "whole"), [(20, True), (21, False), (24, False)])
def test_floor_raised_during_the_copy(
    ring: FrameRing, floor: int, whole: bool, overtaken: Any
) -> None:
    """Its memory may have been returned before the copy was made."""
    fill(ring, CAPACITY)
    ring.frames = overtaken(ring.frames, lambda: ring.raise_floor(floor))
    assert (observe(ring, 23) is not None) == whole


@pytest.mark.parametrize(
    "during",
    [lambda ring: ring.raise_floor(6), lambda ring: ring.publish(5 + CAPACITY, picture(9), 0)],
)
def test_single_frame_lost_during_the_copy(
    ring: FrameRing, during: Callable[[FrameRing], None], overtaken: Any
) -> None:
    ring.publish(5, picture(5), 0)
    ring.frames = overtaken(ring.frames, lambda: during(ring))
    assert ring.frame(5) is None


def test_slot_replaced_between_its_number_and_its_start(ring: FrameRing) -> None:
    """The start that is then read belongs to a later episode, whose frames are all there."""
    fill(ring, CAPACITY + 5)
    # The reader has seen number 10 in its slot; now the writer has come round.
    ring.episode_starts[10] = CAPACITY + 2
    assert observe(ring, 10) is None


def test_writer_killed_anywhere(memory: memoryview, blueprint: Blueprint, images: Images) -> None:
    ring = FrameRing(memory, blueprint, CAPACITY)
    fill(ring, CAPACITY)
    left = images(
        memory, lambda: ring.publish(CAPACITY, picture(CAPACITY), 0),
        FrameRing.publish.__code__, *RING_CODES,
    )
    seen = set()
    for image in left:
        memory[:] = image
        reader = FrameRing(memory, blueprint, CAPACITY)
        old, new = observe(reader, 3), observe(reader, CAPACITY)
        assert old in (None, [0, 1, 2, 3])
        assert new in (None, [CAPACITY - 3, CAPACITY - 2, CAPACITY - 1, CAPACITY])
        assert reader.newest in (CAPACITY - 1, CAPACITY)
        assert observe(reader, reader.newest) is not None
        seen.add((old is None, new is None))
        # A restarted writer goes on from here.
        reader.publish(reader.newest + 1, picture(reader.newest + 1), 0)
        assert observe(reader, reader.newest) is not None
    assert seen == {(False, True), (True, True), (True, False)}


def test_arrays_are_where_the_slots_are(memory: memoryview, blueprint: Blueprint) -> None:
    ring = FrameRing(memory, blueprint, CAPACITY)
    slot = 9
    before = bytes(memory)
    ring.publish(slot, np.full((6, 5), 255, np.uint8), slot)
    changed = np.flatnonzero(np.frombuffer(memory, np.uint8) != np.frombuffer(before, np.uint8))
    found, expected = {*changed.tolist()}, {*range(12)}
    for start, size in FrameRing.arrays(blueprint, CAPACITY):
        assert start + slot * size in found
        expected |= {*range(start + slot * size, start + (slot + 1) * size)}
    assert found <= expected


def test_vectors() -> None:
    blueprint = make_blueprint(frame_shape=(3,), frame_dtype="float32", frame_stack=2)
    ring = FrameRing.private(blueprint, CAPACITY)
    for number in range(CAPACITY + 1):
        ring.publish(number, np.array([number, 0.5, -1e30], np.float32), 0)
    out = np.zeros((2, 3), np.float32)
    assert ring.observation(CAPACITY, out)
    wanted = [[CAPACITY - 1, 0.5, -1e30], [CAPACITY, 0.5, -1e30]]
    assert out.tolist() == np.array(wanted, np.float32).tolist()


def test_publishing_rings_the_bell(ring: FrameRing) -> None:
    heard = []
    ring.bell.ring = lambda: heard.append(ring.newest)  # type: ignore[method-assign]
    ring.publish(0, picture(0), 0)
    # Rung last: who wakes finds the frame.
    assert heard == [0]
