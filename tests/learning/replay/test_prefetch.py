"""Prefetching: right batches, bounded memory, no lost errors, no thread left behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch

from rtagent.config import LearningConfig
from rtagent.learning.device import Device
from rtagent.learning.replay.batch import Batch, BatchBuffer
from rtagent.learning.replay.prefetch import RETRY_S, Prefetcher
from rtagent.learning.replay.replay import Replay
from tests.forked import eventually
from tests.rows import private_rings, write_row

LIMIT_S = 60.0
"""Longest wait for something that happens at once on a machine that is not busy."""


class StubReplay:
    """Tells how it is used; batches of as many zeros as are asked for."""

    def __init__(self) -> None:
        self.sampled: list[tuple[int, float]] = []
        self.buffers: list[BatchBuffer] = []
        self.in_use: list[BatchBuffer] = []
        self.threads: set[int] = set()
        self.error: Exception | None = None
        self.empty = False
        self.backlog = 0

    def new_buffer(self, memory: Any) -> BatchBuffer:
        self.buffers.append(object())  # type: ignore[arg-type]
        return self.buffers[-1]

    def catch_up(self) -> None:
        self.threads.add(threading.get_ident())
        self.backlog = 0

    def sample(
        self, count: int, rng: np.random.Generator, beta: float, out: BatchBuffer
    ) -> Batch | None:
        self.threads.add(threading.get_ident())
        self.sampled.append((count, beta))
        self.in_use.append(out)
        if self.error is not None:
            raise self.error
        if self.empty:
            return None
        zeros = torch.zeros(count)
        return Batch(zeros, zeros.long(), zeros, zeros, zeros, zeros.bool(), zeros)


@pytest.fixture
def replay() -> StubReplay:
    return StubReplay()


@pytest.fixture
def start() -> Iterator[Callable[..., Prefetcher]]:
    """Makes prefetchers that are closed after the test."""
    made: list[Prefetcher] = []

    def make(replay: Any, depth: int) -> Prefetcher:
        made.append(Prefetcher(replay, np.random.default_rng(0), depth))
        return made[-1]

    yield make
    for each in made:
        each.close()
    assert not [each for each in threading.enumerate() if each.name == "prefetch"]


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_batches_are_what_the_ring_holds(depth: int, start: Any, make_blueprint: Any) -> None:
    frames, ledger = private_rings(make_blueprint((1,), "float32", 2), 100)
    for tick in range(80):
        frames.publish(tick, np.float32([tick]), 0)
        write_row(ledger, tick)
    prefetcher = start(Replay(frames, ledger, LearningConfig(n_step=1)), depth)
    for count in (8, 8, 8, 5, 8):
        batch = prefetcher.take(count, LIMIT_S)
        assert batch.observations[:, 1, 0].tolist() == batch.frames.tolist()
        assert batch.next_observations[:, 0, 0].tolist() == batch.frames.tolist()
        assert len(batch.actions) == count
        # The thread goes on, and must not write where this batch is read.
        for tick in range(ledger.newest + 1, ledger.newest + 31):
            frames.publish(tick, np.float32([tick]), 0)
            write_row(ledger, tick)
        assert batch.observations[:, 1, 0].tolist() == batch.frames.tolist()
    newest = max(prefetcher.take(64, LIMIT_S).frames)
    assert newest > 150


def test_the_thread_sends_batches_to_the_device(replay: StubReplay) -> None:
    threads: list[str] = []

    @contextmanager
    def copying() -> Iterator[None]:
        yield
        threads.append(threading.current_thread().name)

    device = Device(torch.device("cpu"), copying)
    prefetcher = Prefetcher(replay, np.random.default_rng(0), 1, device)  # type: ignore[arg-type]
    try:
        batch = prefetcher.take(4, LIMIT_S)
        assert batch.sent
    finally:
        prefetcher.close()
    assert set(threads) == {"prefetch"}


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_no_more_is_made_ready_than_was_agreed(depth: int, replay: StubReplay, start: Any) -> None:
    prefetcher = start(replay, depth)
    assert not replay.sampled
    for taken in range(1, 6):
        assert prefetcher.take(4, LIMIT_S) is not None
        assert eventually(lambda: len(replay.sampled) == taken + depth)  # noqa: B023
    assert len(replay.buffers) == depth + 1
    assert threading.get_ident() not in replay.threads


def test_the_held_batch_keeps_its_buffer(replay: StubReplay, start: Any) -> None:
    prefetcher = start(replay, 2)
    for taken in range(20):
        assert prefetcher.take(4, LIMIT_S) is not None
        assert eventually(lambda: len(replay.sampled) == taken + 3)  # noqa: B023
        # In the order of sampling: the held one, and the two that are ready.
        assert len(set(map(id, replay.in_use[-3:]))) == 3


def test_a_buffer_is_given_back_once(replay: StubReplay, start: Any) -> None:
    prefetcher = start(replay, 1)
    assert prefetcher.take(4, LIMIT_S) is not None
    assert eventually(lambda: len(replay.sampled) == 2)
    replay.empty = True
    assert prefetcher.take(4, LIMIT_S) is not None
    assert [prefetcher.take(4, 0.0) for _ in range(3)] == [None] * 3
    replay.empty = False
    assert prefetcher.take(4, LIMIT_S) is not None
    assert eventually(lambda: prefetcher._ready)
    assert prefetcher._ready[0][1] is not prefetcher._held


def test_another_size_is_made_anew(replay: StubReplay, start: Any) -> None:
    prefetcher = start(replay, 2)
    for count in (4, 4, 6, 6, 4, 9):
        batch = prefetcher.take(count, LIMIT_S)
        assert len(batch.actions) == count
    assert eventually(lambda: replay.sampled[-1][0] == 9)


def test_a_batch_whose_size_is_not_wanted_any_more_when_it_is_made_is_dropped(
    replay: StubReplay, start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefetcher, sample = start(replay, 1), replay.sample

    def slowly(count: int, *given: Any) -> Batch | None:
        if count == 4:
            assert eventually(lambda: prefetcher._wanted == 6, LIMIT_S)
        return sample(count, *given)

    monkeypatch.setattr(replay, "sample", slowly)
    assert prefetcher.take(4, 0.0) is None
    assert eventually(lambda: len(prefetcher._free) == 1, LIMIT_S)
    assert len(prefetcher.take(6, LIMIT_S).actions) == 6
    assert [count for count, _ in replay.sampled[:2]] == [4, 6]


def test_beta_is_that_of_the_last_call(replay: StubReplay, start: Any) -> None:
    prefetcher = start(replay, 1)
    prefetcher.take(4, LIMIT_S, 0.5)
    assert eventually(lambda: len(replay.sampled) == 2)
    prefetcher.take(4, LIMIT_S, 0.75)
    assert eventually(lambda: replay.sampled == [(4, 0.5), (4, 0.5), (4, 0.75)])


def test_depth_0_samples_in_the_caller(replay: StubReplay, start: Any) -> None:
    prefetcher = start(replay, 0)
    replay.backlog = 20_000
    assert prefetcher.take(4, 0.0, 0.3) is not None
    assert replay.sampled == [(4, 0.3)]
    assert replay.threads == {threading.get_ident()}
    assert replay.backlog == 0
    replay.empty = True
    assert prefetcher.take(4, 0.0) is None


def test_the_thread_catches_up_first(replay: StubReplay, start: Any) -> None:
    replay.backlog = 50_000
    assert start(replay, 1).take(4, LIMIT_S) is not None
    assert replay.backlog == 0


def test_nothing_to_sample_is_none_and_does_not_spin(replay: StubReplay, start: Any) -> None:
    replay.empty = True
    prefetcher = start(replay, 2)
    begun = time.monotonic()
    assert prefetcher.take(4, 0.05) is None
    # On a busy machine the thread may not have run yet.
    assert eventually(lambda: bool(replay.sampled), LIMIT_S)
    assert len(replay.sampled) <= 2 + (time.monotonic() - begun) / RETRY_S
    replay.empty = False
    assert prefetcher.take(4, LIMIT_S) is not None


def test_an_error_of_the_thread_reaches_the_learner(replay: StubReplay, start: Any) -> None:
    prefetcher = start(replay, 2)
    assert prefetcher.take(4, LIMIT_S) is not None
    replay.error = MemoryError("no more")

    def take_what_is_ready() -> None:
        for _ in range(5):
            prefetcher.take(4, LIMIT_S)

    for _ in range(2):
        with pytest.raises(MemoryError, match="no more"):
            take_what_is_ready()


def test_close_ends_a_thread_that_waits(replay: StubReplay, start: Any) -> None:
    idle, asked, empty = start(replay, 1), start(replay, 1), start(StubReplay(), 1)
    asked.take(4, LIMIT_S)
    empty._replay.empty = True
    empty.take(4, 0.01)
    for each in (idle, asked, empty):
        each.close()
        each.close()
        assert not each._thread.is_alive()
