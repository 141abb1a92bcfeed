"""The double buffer: whatever the writer was killed in, a reader has one record, whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtagent.memory.arena import private_memory
from rtagent.memory.double_buffer import (
    READ_ATTEMPTS,
    DoubleBuffer,
    JsonDoubleBuffer,
    RecordDoubleBuffer,
)

CAPACITY = 256
LENGTH = 5
CODES = (DoubleBuffer.begin.__code__, DoubleBuffer.finish.__code__)
Images = Callable[..., list[bytes]]

words = st.text("aé\n", max_size=5)
documents = st.dictionaries(words, st.one_of(st.integers(-9, 9), words), max_size=3)


class Numbers:
    """A user of a double buffer: `LENGTH` times the same number, stored one after the other."""

    def __init__(self, memory: memoryview, copies: int) -> None:
        self.buffer = DoubleBuffer(memory, copies)
        self.copies = np.frombuffer(memory, np.int64, copies * LENGTH, 64).reshape(copies, LENGTH)
        self.during: Callable[[], None] = lambda: None

    def fill(self, value: int) -> None:
        copy = self.copies[self.buffer.begin()]
        for index in range(LENGTH):
            copy[index] = value

    def write(self, value: int) -> None:
        self.fill(value)
        self.buffer.finish()

    def read(self) -> int | None:
        found = self.buffer.read_by(self._copied)
        assert found is None or len(found) == 1
        return None if found is None else found.pop()

    def _copied(self, copy: int) -> set[int]:
        first = self.copies[copy, 0]
        self.during()
        return {int(first), *map(int, self.copies[copy])}


@pytest.fixture(params=[2, 3])
def numbers(request: pytest.FixtureRequest) -> Numbers:
    return Numbers(private_memory(64 + 24 * LENGTH), request.param)


def test_the_newest_record(numbers: Numbers) -> None:
    for number in range(1, 9):
        numbers.write(10 * number)
        assert numbers.buffer.number == number
        assert numbers.read() == 10 * number
        assert (numbers.copies[numbers.buffer.current] == 10 * number).all()


def test_what_is_not_published_changes_nothing(numbers: Numbers) -> None:
    numbers.fill(1)
    assert numbers.buffer.number == 0
    assert numbers.read() is None
    numbers.write(2)
    numbers.fill(3)
    assert numbers.read() == 2
    numbers.write(4)
    assert numbers.read() == 4


@pytest.mark.parametrize("copies", [2, 3])
def test_writer_killed_anywhere(copies: int, images: Images) -> None:
    memory = private_memory(64 + 24 * LENGTH)
    numbers = Numbers(memory, copies)
    for value in range(5):
        numbers.write(value)
    left = images(memory, lambda: numbers.write(5), *CODES, Numbers.fill.__code__)
    assert len(left) > 10
    seen = []
    for image in left:
        memory[:] = image
        successor = Numbers(memory, copies)
        seen.append(successor.read())
        successor.write(6)
        assert successor.read() == 6
    assert seen == sorted(seen)
    assert {*seen} == {4, 5}


def test_a_reader_is_lapped_only_by_a_writer_that_comes_round(numbers: Numbers) -> None:
    copies = len(numbers.copies)
    for laps, expected in ((copies - 1, 1), (copies, 10 + copies - 1)):
        numbers.write(1)
        numbers.during = lambda laps=laps: overtake(numbers, range(10, 10 + laps))
        assert numbers.read() == expected


def overtake(numbers: Numbers, values: range) -> None:
    numbers.during = lambda: None
    for value in values:
        numbers.write(value)


def test_a_reader_that_is_always_lapped_gives_up(numbers: Numbers) -> None:
    numbers.write(0)
    attempts = []

    def fill_all() -> None:
        attempts.append(1)
        for _ in numbers.copies:
            numbers.write(len(attempts))

    numbers.during = fill_all
    assert numbers.buffer.read_by(numbers._copied) is None
    assert len(attempts) == READ_ATTEMPTS


def test_what_its_user_does_not_believe_is_read_again(numbers: Numbers) -> None:
    numbers.write(1)
    answers = [None, None, "whole"]
    assert numbers.buffer.read_by(lambda copy: answers.pop(0)) == "whole"
    assert answers == []


# ---- records


@dataclass
class Measured:
    """Its float is found by its type."""

    count: int = 7
    share: float = 0.5


def test_records() -> None:
    memory = private_memory(RecordDoubleBuffer.size(Measured))
    writer, reader = RecordDoubleBuffer(memory, Measured), RecordDoubleBuffer(memory, Measured)
    assert reader.read() == Measured()
    for count in range(-1, 4):
        writer.write(Measured(count, count / 4))
        assert reader.read() == Measured(count, count / 4)
    assert reader.number == 5


def test_what_a_reader_changes_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = RecordDoubleBuffer(private_memory(RecordDoubleBuffer.size(Measured)), Measured)
    buffer.write(Measured(3))
    buffer.read().count = 4
    monkeypatch.setattr(buffer, "lapped", lambda number: True)
    assert buffer.read() == Measured(3)


# ---- documents


def document(memory: memoryview) -> JsonDoubleBuffer:
    return JsonDoubleBuffer(memory, CAPACITY)


@pytest.fixture
def memory() -> memoryview:
    return private_memory(JsonDoubleBuffer.size(CAPACITY))


@settings(max_examples=50)
@given(st.lists(documents, max_size=6))
def test_round_trip(values: list[dict[str, Any]]) -> None:
    memory = private_memory(JsonDoubleBuffer.size(CAPACITY))
    writer, reader = document(memory), document(memory)
    assert reader.read() == {}
    for value in values:
        writer.write(value)
        assert reader.read() == document(memory).read() == value


def test_damaged_document_keeps_the_previous(memory: memoryview) -> None:
    writer, reader = document(memory), document(memory)
    writer.write({"a": 1})
    assert reader.read() == {"a": 1}
    writer.write({"a": 2})
    at = bytes(memory).index(b'{"a": 2}')
    memory[at + 6] ^= 1
    assert reader.read() == {"a": 1}
    assert document(memory).read() == {}
    memory[at + 6] ^= 1
    assert reader.read() == {"a": 2}


@pytest.mark.parametrize("length", [0, CAPACITY + 1, 2**32 - 1])
def test_impossible_length_is_not_followed(memory: memoryview, length: int) -> None:
    document(memory).write({"a": 1})
    at = bytes(memory).index(b'{"a": 1}') - 8
    memory[at : at + 4] = length.to_bytes(4, "little")
    assert document(memory).read() == {}


def test_too_long_a_document_is_refused_and_changes_nothing(memory: memoryview) -> None:
    writer = document(memory)
    writer.write({"a": 1})
    image = bytes(memory)
    with pytest.raises(ValueError, match="document of 301 bytes in a buffer of 256"):
        writer.write({"a": "x" * 292})
    assert bytes(memory) == image


def test_unchanged_document_is_not_parsed_again(memory: memoryview) -> None:
    document(memory).write({"a": 1})
    reader = document(memory)
    assert reader.read() is reader.read()
