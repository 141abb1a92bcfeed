"""The process metrics: one record per process, and two rings of samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rtagent.config import MAX_INFERENCE_PROCESSES
from rtagent.memory.process_metrics import (
    EPISODES,
    MARKS,
    MAX_LEARNERS,
    SAMPLES,
    ProcessMetrics,
    add_episode,
    add_mark,
    add_registration,
    applied_rate,
    recent_episodes,
    registrations_since,
)

COUNTS = {"environment": 1, "service": 1, "learner": MAX_LEARNERS,
          "inference": MAX_INFERENCE_PROCESSES}


@pytest.fixture
def memory(shared: Callable[[int], memoryview]) -> memoryview:
    return shared(ProcessMetrics.size())


def test_records_do_not_overlap(memory: memoryview) -> None:
    metrics = ProcessMetrics(memory)
    numbers = {}
    for role, count in COUNTS.items():
        for index in range(count):
            numbers[role, index] = len(numbers) + 1
            metrics.record(role, index)["heartbeat_ns"] = numbers[role, index]
            metrics.record(role, index)["ready"] = numbers[role, index]
    other = ProcessMetrics(memory)
    for (role, index), number in numbers.items():
        record = other.record(role, index)
        assert record.shape == (1,)
        assert record["heartbeat_ns"][0] == record["ready"][0] == number


def test_last_field_lies_inside(memory: memoryview) -> None:
    metrics = ProcessMetrics(memory)
    metrics.inference["recent"][-1, -1] = (1, 2, 3)
    at = ProcessMetrics.size() - 24
    assert np.frombuffer(memory, "<i8", 3, at).tolist() == [1, 2, 3]


def test_every_field_is_stored_in_one_piece(memory: memoryview) -> None:
    metrics = ProcessMetrics(memory)
    for records in (metrics.environment, metrics.service, metrics.learners, metrics.inference):
        assert records.ctypes.data % 8 == 0
        assert records.dtype.itemsize % 8 == 0
        for name, (kind, offset, *_) in records.dtype.fields.items():
            assert offset % 8 == 0, name
            assert kind.base.itemsize % 8 == 0, name


def test_unknown_role(memory: memoryview) -> None:
    with pytest.raises(KeyError):
        ProcessMetrics(memory).record("janitor", 0)


def latencies(record: Any, since_ns: int) -> list[int]:
    return registrations_since(record, since_ns)["latency_ns"].tolist()


def test_registrations(memory: memoryview) -> None:
    record = ProcessMetrics(memory).record("inference", 3)
    assert latencies(record, 0) == []
    for time in range(5):
        add_registration(record, time, 100 + time, 7 * time)
    assert latencies(record, 0) == [100, 101, 102, 103, 104]
    assert latencies(record, 3) == [103, 104]
    assert registrations_since(record, 3)["tick"].tolist() == [21, 28]
    assert latencies(record, 9) == []
    assert latencies(ProcessMetrics(memory).record("inference", 2), 0) == []


def test_ring_of_registrations_wraps_around(memory: memoryview) -> None:
    record = ProcessMetrics(memory).record("inference", 0)
    for time in range(SAMPLES + 10):
        add_registration(record, time, time, time)
    # The oldest entry of a full ring is the next to be replaced.
    assert latencies(record, 0) == list(range(11, SAMPLES + 10))


def test_successor_goes_on_counting(memory: memoryview) -> None:
    add_registration(ProcessMetrics(memory).record("inference", 0), 1, 11, 0)
    add_registration(ProcessMetrics(memory).record("inference", 0), 2, 12, 0)
    assert latencies(ProcessMetrics(memory).record("inference", 0), 0) == [11, 12]


def test_episodes(memory: memoryview) -> None:
    record = ProcessMetrics(memory).environment
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
    assert everything.tolist() == list(range(8, EPISODES + 7))


def test_the_rate_of_a_learner_is_that_of_the_last_seconds(memory: memoryview) -> None:
    record, second = ProcessMetrics(memory).record("learner", 3), 1_000_000_000
    assert applied_rate(record, 0, 5 * second) is None
    for at_s in range(2 * MARKS):
        record["applied"] = 10 * at_s if at_s < 100 else 1000 + 40 * (at_s - 100)
        add_mark(record, at_s * second)
        if at_s == 0:
            assert applied_rate(record, 0, 5 * second) is None, "too short"
        elif at_s < 100:
            assert applied_rate(record, at_s * second, 5 * second) == pytest.approx(10.0)
    now_s = 2 * MARKS - 1
    assert applied_rate(record, now_s * second, 5 * second) == pytest.approx(40.0)
    # It computes a long gradient, say; then what was before says nothing about now.
    assert applied_rate(record, (now_s + 8) * second, 5 * second) == 0.0
    assert applied_rate(record, (now_s + 11) * second, 5 * second) is None
