"""Copies of stacks: compiled or not, what is told to be right is right, also beside a writer."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rtagent.memory.compiled import compiled
from rtagent.memory.frames import FrameRing
from rtagent.memory.gather import Gather, prepare_gather
from tests.conftest import make_blueprint
from tests.forked import Forked

pytestmark = pytest.mark.usefixtures("either_way")
Shared = Callable[[int], memoryview]
STACK = 4
PATTERNS = 251
LEAST_SEEN = 2000
PATIENCE_S = 180.0


@pytest.fixture
def make_ring(shared: Shared) -> Callable[..., FrameRing]:
    """Makes an empty ring."""

    def make(
        capacity: int = 300, shape: tuple[int, ...] = (4, 4), dtype: str = "uint8",
        stack: int = STACK,
    ) -> FrameRing:
        blueprint = make_blueprint(frame_shape=shape, frame_dtype=dtype, frame_stack=stack)
        memory = shared(FrameRing.size(blueprint, capacity))
        FrameRing.format(memory)
        return FrameRing(memory, blueprint, capacity)

    return make


def publish(ring: FrameRing, stop: int, episode: int = 25) -> None:
    """Frames that are their numbers, in episodes of one length."""
    for number in range(stop):
        ring.publish(
            number, np.full(ring.frames.shape[1:], number % PATTERNS, ring.frames.dtype),
            number - number % episode,
        )


def gather(
    ring: FrameRing, numbers: Any, length: int, prepare: Callable[..., Gather] = prepare_gather
) -> Any:
    """Frames and which are right."""
    numbers = np.array(numbers, np.int64)
    out = np.zeros((len(numbers), length, *ring.frames.shape[1:]), ring.frames.dtype)
    prepared = prepare(ring, numbers, out)
    whole = prepared.run()
    assert whole == prepared.right.all()
    return out, prepared.right


def test_it_is_done_the_way_that_is_meant(either_way: str, make_ring: Any) -> None:
    numbers, out = np.zeros(1, np.int64), np.zeros((1, STACK, 4, 4), np.uint8)
    prepared = prepare_gather(make_ring(), numbers, out)
    assert (type(prepared) is Gather) == (either_way == "numpy")
    assert (compiled("rtagent_gather") is None) == (either_way == "numpy")


def test_vectors(make_ring: Any) -> None:
    ring = make_ring(20, (3,), "float32", 2)
    for tick in range(10):
        ring.publish(tick, np.full(3, tick, np.float32), 5 if tick >= 5 else 0)
    out, right = gather(ring, [3, 5, 8], 3)
    assert right.all()
    assert out[:, :, 0].tolist() == [[2.0, 3.0, 4.0], [5.0, 5.0, 6.0], [7.0, 8.0, 9.0]]


def test_what_is_not_there_is_told_frame_by_frame(make_ring: Any) -> None:
    ring = make_ring()
    publish(ring, 24)
    ring.stamps[10] = -1
    _, right = gather(ring, [7, 9, 13, 14, 22, 23, 300], STACK + 1)
    assert right.tolist() == [
        [True] * 5,
        [True, True, True, True, False],
        [False, True, True, True, True],
        [True] * 5,
        [True] * 5,
        [True, True, True, True, False],
        [False] * 5,
    ]


def test_a_frame_whose_slot_begins_another_episode_is_lost(make_ring: Any) -> None:
    ring = make_ring(20)
    publish(ring, 30)
    # Slot 5 holds frame 25, the first of its episode: clamped to it, all of the stack is there.
    _, right = gather(ring, [5], STACK)
    assert not right.any()


@pytest.mark.parametrize("shape", [(1,), (7,), (9, 11), (84, 84), (200, 150)])
@pytest.mark.parametrize("count", [1, 63, 64, 65, 200])
def test_many_runs_of_any_frames(shape: tuple[int, ...], count: int, make_ring: Any) -> None:
    """Round the seam of the ring, with episodes of a few frames, holes, and a floor."""
    ring = make_ring(40, shape)
    rng = np.random.default_rng(count)
    publish(ring, 95, episode=13)
    ring.stamps[rng.integers(0, 40, 3)] = -1
    ring.raise_floor(60)
    numbers = rng.integers(45, 96, count)
    for length in (1, STACK, STACK + 1, 2 * STACK):
        out, right = gather(ring, numbers, length)
        plain_out, plain_right = gather(ring, numbers, length, Gather)
        assert right.tolist() == plain_right.tolist()
        assert right.any() or count == 1
        assert (out[right] == plain_out[right]).all()
        for i, number in enumerate(numbers.tolist()):
            start = min(number - number % 13, number)
            wanted = [max(start, number + 1 - STACK + k) for k in range(length)]
            found = out[i].reshape(length, -1)[right[i]]
            told = np.array(wanted)[right[i]] % PATTERNS
            assert (found == told[:, None]).all()


def test_it_looks_anew_each_time(make_ring: Any) -> None:
    ring = make_ring()
    publish(ring, 20)
    numbers, out = np.array([5]), np.zeros((1, STACK, 4, 4), np.uint8)
    prepared = prepare_gather(ring, numbers, out)
    assert prepared.run()
    assert out[0, :, 0, 0].tolist() == [2, 3, 4, 5]
    numbers[0] = 15
    assert prepared.run()
    assert out[0, :, 0, 0].tolist() == [12, 13, 14, 15]
    ring.raise_floor(13)
    assert not prepared.run()
    assert prepared.right.tolist() == [[False, True, True, True]]


@pytest.mark.parametrize(
    ("numbers", "out"),
    [
        (np.zeros(3, np.int64), np.zeros((2, STACK, 4, 4), np.uint8)),
        (np.zeros(2, np.int32), np.zeros((2, STACK, 4, 4), np.uint8)),
        (np.zeros(4, np.int64)[::2], np.zeros((2, STACK, 4, 4), np.uint8)),
        (np.zeros(2, np.int64), np.zeros((2, STACK, 4, 5), np.uint8)),
        (np.zeros(2, np.int64), np.zeros((2, STACK, 4, 4), np.float32)),
        (np.zeros(2, np.int64), np.zeros((2, 2 * STACK, 4, 4), np.uint8)[:, ::2]),
    ],
)
def test_memory_that_does_not_fit_is_refused(
    numbers: np.ndarray, out: np.ndarray, make_ring: Any
) -> None:
    with pytest.raises(ValueError, match="no room for"):
        prepare_gather(make_ring(), numbers, out)


@pytest.mark.process
def test_beside_a_writer_nothing_torn_is_told_to_be_right(forked: Forked, make_ring: Any) -> None:
    """A small ring, written as fast as possible; stacks are asked for right where it is written."""
    ring = make_ring(48, (64, 64))

    def write() -> None:
        frame = np.empty((64, 64), np.uint8)
        number = 0
        while True:
            frame[:] = number % PATTERNS
            ring.publish(number, frame, number - number % 30)
            number += 1

    writer = forked.start(write)
    # Long enough for the writer to pass the guard while they are copied.
    runs = 64
    rng, lost, right = np.random.default_rng(0), 0, 0
    numbers, out = np.zeros(runs, np.int64), np.zeros((runs, STACK, 64, 64), np.uint8)
    prepared = prepare_gather(ring, numbers, out)
    deadline = time.monotonic() + PATIENCE_S
    # However seldom the writer gets a core beside this process.
    while min(right, lost) < LEAST_SEEN and time.monotonic() < deadline:
        numbers[:] = np.maximum(0, ring.newest - rng.integers(30, 44, runs))
        prepared.run()
        starts = numbers - numbers % 30
        wanted = np.maximum(starts[:, None], numbers[:, None] + np.arange(1 - STACK, 1))
        whole = (out == (wanted % PATTERNS)[:, :, None, None]).all(axis=(2, 3))
        assert whole[prepared.right].all()
        right += np.count_nonzero(prepared.right)
        lost += np.count_nonzero(~whole)
    forked.kill(writer)
    assert min(right, lost) >= LEAST_SEEN, f"{right} right, {lost} lost"
