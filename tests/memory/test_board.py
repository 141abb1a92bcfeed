"""The metrics board: one record per process, and two rings of samples."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from rtagent.config import MAX_INFERENCE_PROCESSES
from rtagent.memory.board import (
    EPISODES,
    LATENCY_SAMPLES,
    MAX_LEARNERS,
    Board,
    add_episode,
    add_latency,
    latencies_since,
    recent_episodes,
)

COUNTS = {"environment": 1, "service": 1, "learner": MAX_LEARNERS,
          "inference": MAX_INFERENCE_PROCESSES}


@pytest.fixture
def memory(shared: Callable[[int], memoryview]) -> memoryview:
    return shared(Board.size())


def test_records_do_not_overlap(memory: memoryview) -> None:
    board = Board(memory)
    numbers = {}
    for role, count in COUNTS.items():
        for index in range(count):
            numbers[role, index] = len(numbers) + 1
            board.record(role, index)["heartbeat_ns"] = numbers[role, index]
            board.record(role, index)["ready"] = numbers[role, index]
    other = Board(memory)
    for (role, index), number in numbers.items():
        record = other.record(role, index)
        assert record.shape == (1,)
        assert record["heartbeat_ns"][0] == record["ready"][0] == number


def test_last_field_lies_inside(memory: memoryview) -> None:
    board = Board(memory)
    board.inference["latencies"][-1, -1] = (1, 2)
    at = Board.size() - 16
    assert np.frombuffer(memory, "<i8", 2, at).tolist() == [1, 2]


def test_every_field_is_stored_in_one_piece(memory: memoryview) -> None:
    board = Board(memory)
    for records in (board.environment, board.service, board.learners, board.inference):
        assert records.ctypes.data % 8 == 0
        assert records.dtype.itemsize % 8 == 0
        for name, (kind, offset, *_) in records.dtype.fields.items():
            assert offset % 8 == 0, name
            assert kind.base.itemsize % 8 == 0, name


def test_unknown_role(memory: memoryview) -> None:
    with pytest.raises(KeyError):
        Board(memory).record("janitor", 0)


def test_inference_times(memory: memoryview) -> None:
    record = Board(memory).record("inference", 3)
    assert latencies_since(record, 0).tolist() == []
    for time in range(5):
        add_latency(record, time, 100 + time)
    assert latencies_since(record, 0).tolist() == [100, 101, 102, 103, 104]
    assert latencies_since(record, 3).tolist() == [103, 104]
    assert latencies_since(record, 9).tolist() == []
    assert latencies_since(Board(memory).record("inference", 2), 0).tolist() == []


def test_ring_of_inference_times_wraps_around(memory: memoryview) -> None:
    record = Board(memory).record("inference", 0)
    for time in range(LATENCY_SAMPLES + 10):
        add_latency(record, time, time)
    assert sorted(latencies_since(record, 0)) == list(range(10, LATENCY_SAMPLES + 10))


def test_successor_goes_on_counting(memory: memoryview) -> None:
    add_latency(Board(memory).record("inference", 0), 1, 11)
    add_latency(Board(memory).record("inference", 0), 2, 12)
    assert latencies_since(Board(memory).record("inference", 0), 0).tolist() == [11, 12]


def test_episodes(memory: memoryview) -> None:
    record = Board(memory).environment
    assert len(recent_episodes(record, 10)) == 0
    for number in range(EPISODES + 7):
        add_episode(record, number, end_tick=10 * number, length=9, total=number / 2)
    assert record["episodes"][0] == EPISODES + 7
    newest = recent_episodes(record, 3)
    assert newest["episode"].tolist() == [EPISODES + 4, EPISODES + 5, EPISODES + 6]
    assert newest["end_tick"].tolist() == [10 * (EPISODES + 4 + step) for step in range(3)]
    assert newest["return"].tolist() == [(EPISODES + 4 + step) / 2 for step in range(3)]
    assert newest["length"].tolist() == [9, 9, 9]
    everything = recent_episodes(record, 10 * EPISODES)["episode"]
    assert everything.tolist() == list(range(7, EPISODES + 7))
