"""Horizon, reservations and decisions: whole whatever happens to their writer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, fields
from typing import Any

import numpy as np
import pytest

from rtagent.memory.double_buffer import DoubleBuffer
from rtagent.memory.horizon import DECISIONS, Decision, Horizon, HorizonRecord, Reservations
from rtagent.memory.ring import EntryList


def numbered(kind: type, number: int) -> Any:
    """A record whose every field says the same number."""
    return kind(*[type(getattr(kind(), field.name))(number) for field in fields(kind)])


def uniform(record: Any) -> bool:
    return len({int(value) for value in astuple(record)}) == 1


@pytest.fixture
def memory(shared: Callable[[int], memoryview]) -> memoryview:
    return shared(HorizonRecord.size())


def test_a_new_record_knows_nothing(memory: memoryview) -> None:
    record = HorizonRecord(memory)
    assert record.read().number == 0
    assert np.isnan(record.read().time_ratio)
    assert record.reservations.budget_bytes == -1
    assert np.isnan(record.reservations.beta)
    assert record.decisions() == []


def test_what_is_written_is_read_by_another_mapping(memory: memoryview) -> None:
    record, other = HorizonRecord(memory), HorizonRecord(memory)
    for number in range(1, 6):
        record.write(numbered(Horizon, number))
        record.reserve(numbered(Reservations, 10 * number))
        assert other.read() == numbered(Horizon, number)
        assert other.reservations == numbered(Reservations, 10 * number)


def test_a_copy_is_not_the_record(memory: memoryview) -> None:
    record = HorizonRecord(memory)
    record.read().consumed = 99
    assert record.read().consumed == 0


def test_a_reader_that_is_lapped_again_and_again_has_what_it_read_before(
    memory: memoryview, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = HorizonRecord(memory)
    record.write(numbered(Horizon, 1))
    record.reserve(numbered(Reservations, 2))
    assert (record.read().number, record.reservations.used_bytes) == (1, 2)
    monkeypatch.setattr(DoubleBuffer, "lapped", lambda self, number: True)
    record.write(numbered(Horizon, 3))
    record.reserve(numbered(Reservations, 4))
    assert (record.read().number, record.reservations.used_bytes) == (1, 2)


def test_a_writer_killed_in_the_middle_of_a_decision_leaves_no_half_decision(
    memory: memoryview, images: Callable[..., list[bytes]]
) -> None:
    record = HorizonRecord(memory)
    for number in range(DECISIONS):
        record.add(numbered(Decision, number))
    add = EntryList.append.__code__
    for image in images(memory, lambda: record.add(numbered(Decision, DECISIONS)), add):
        decisions = HorizonRecord(memoryview(bytearray(image))).decisions()
        assert len(decisions) >= DECISIONS - 1
        assert all(uniform(each) for each in decisions)
        numbers = [each.number for each in decisions]
        assert numbers == sorted(numbers)


def test_decisions_come_in_their_order_and_only_those_that_are_left(memory: memoryview) -> None:
    record = HorizonRecord(memory)
    for number in range(DECISIONS + 100):
        record.add(Decision(after=number))
    decisions = record.decisions()
    assert [each.after for each in decisions[-3:]] == [1121, 1122, 1123]
    # The writer may be at work on the oldest slot.
    assert len(decisions) == DECISIONS - 1
    assert [each.number for each in record.decisions(most=2)] == [1122, 1123]
    assert [each.number for each in record.decisions(since=1120)] == [1120, 1121, 1122, 1123]
    assert record.decisions(since=record.count) == []


def test_a_decision_is_described_with_names_and_none_for_unknown() -> None:
    shown = Decision(kind=1, mode=4, before=32, after=64).describe()
    assert shown["kind"] == "step"
    assert shown["mode"] == "step"
    assert shown["time_ratio"] is None
    assert (shown["before"], shown["after"]) == (32, 64)
