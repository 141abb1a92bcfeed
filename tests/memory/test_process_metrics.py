"""The process metrics: one record per process, with lists of its newest entries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rtagent.config import MAX_INFERENCE_PROCESSES
from rtagent.memory import ordering
from rtagent.memory.process_metrics import (
    EPISODES,
    MARKS,
    MAX_LEARNERS,
    SAMPLES,
    FinishedEpisode,
    ProcessMetrics,
    Registration,
)

COUNTS = {"environment": 1, "service": 1, "evaluation": 1, "recorder": 1, "converter": 1,
          "learner": MAX_LEARNERS,
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
            metrics.record(role, index).heartbeat_ns = numbers[role, index]
            metrics.record(role, index).ready = numbers[role, index]
    other = ProcessMetrics(memory)
    for (role, index), number in numbers.items():
        record = other.record(role, index)
        assert record.heartbeat_ns == record.ready == number


def test_last_field_lies_inside(memory: memoryview) -> None:
    metrics = ProcessMetrics(memory)
    for _ in range(SAMPLES):
        metrics.inference[-1].registrations.append(Registration(1, 2, 3, 4))
    at = ProcessMetrics.size() - 32
    assert np.frombuffer(memory, "<i8", 4, at).tolist() == [1, 2, 3, 4]


def test_every_field_is_stored_in_one_piece(memory: memoryview) -> None:
    """Whatever it is set to, its eight bytes change, and no others."""
    words = np.frombuffer(memory, "<i8", len(memory) // 8)
    for role in COUNTS:
        record = ProcessMetrics(memory).record(role, 0)
        for name in record.values():
            before = words.copy()
            setattr(record, name, getattr(record, name) + 77)
            assert (words != before).sum() == 1, name
            assert getattr(record, name) == 77


def latencies(record: Any, since_ns: int) -> list[int]:
    return record.registrations_since(since_ns)["latency_ns"].tolist()


def test_registrations(memory: memoryview) -> None:
    record = ProcessMetrics(memory).inference[3]
    assert latencies(record, 0) == []
    for time in range(5):
        record.registrations.append(Registration(time, 100 + time, 7 * time))
    assert latencies(record, 0) == [100, 101, 102, 103, 104]
    assert latencies(record, 3) == [103, 104]
    assert record.registrations_since(3)["tick"].tolist() == [21, 28]
    assert latencies(record, 9) == []
    assert latencies(ProcessMetrics(memory).inference[2], 0) == []


def test_successor_goes_on_counting(memory: memoryview) -> None:
    ProcessMetrics(memory).inference[0].registrations.append(Registration(1, 11, 0))
    ProcessMetrics(memory).inference[0].registrations.append(Registration(2, 12, 0))
    assert latencies(ProcessMetrics(memory).inference[0], 0) == [11, 12]


def test_episodes(memory: memoryview) -> None:
    record = ProcessMetrics(memory).environment
    assert len(record.episodes.newest(10)) == 0
    for number in range(EPISODES + 7):
        record.episodes.append(FinishedEpisode(10 * number, 9, number / 2, number))
    assert record.episodes.count == EPISODES + 7
    newest = record.episodes.newest(3)
    assert newest["episode"].tolist() == [EPISODES + 4, EPISODES + 5, EPISODES + 6]
    assert newest["end_tick"].tolist() == [10 * (EPISODES + 4 + step) for step in range(3)]
    assert newest["return"].tolist() == [(EPISODES + 4 + step) / 2 for step in range(3)]
    assert newest["length"].tolist() == [9, 9, 9]
    everything = record.episodes.newest(10 * EPISODES)["episode"]
    assert everything.tolist() == list(range(8, EPISODES + 7))


def test_new_episodes_come_with_the_count_that_they_lead_to(
    memory: memoryview, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many end meanwhile, none is left out or given twice."""
    episodes, coming = ProcessMetrics(memory).environment.episodes, iter(range(50))

    def finish_one() -> None:
        if (number := next(coming, None)) is not None:
            with monkeypatch.context() as within:
                within.setattr(ordering, "fence", lambda: None)
                episodes.append(FinishedEpisode(number, 1, 0.0, number))

    monkeypatch.setattr(ordering, "fence", finish_one)
    seen, numbers = 0, []
    while len(numbers) < 50:
        found, count = episodes.since(seen)
        assert len(found) == count - seen
        seen = count
        numbers += found["episode"].tolist()
    assert numbers == list(range(50))
    assert episodes.since(50)[1] == 50


def test_the_rate_of_a_learner_is_that_of_the_last_seconds(memory: memoryview) -> None:
    record, second = ProcessMetrics(memory).learners[3], 1_000_000_000
    assert record.applied_rate(0, 5 * second) is None
    for at_s in range(2 * MARKS):
        record.applied = 10 * at_s if at_s < 100 else 1000 + 40 * (at_s - 100)
        record.add_mark(at_s * second)
        if at_s == 0:
            assert record.applied_rate(0, 5 * second) is None, "too short"
        elif at_s < 100:
            assert record.applied_rate(at_s * second, 5 * second) == pytest.approx(10.0)
    now_s = 2 * MARKS - 1
    assert record.applied_rate(now_s * second, 5 * second) == pytest.approx(40.0)
    # It computes a long gradient, say; then what was before says nothing about now.
    assert record.applied_rate((now_s + 8) * second, 5 * second) == 0.0
    assert record.applied_rate((now_s + 11) * second, 5 * second) is None
