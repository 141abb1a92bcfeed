"""The JSON cell: whatever the writer was killed in, a reader has the old document or the new."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtagent.memory.cells import JsonCell
from tests.forked import Forked, at_each_line

CAPACITY = 256
SIZE = JsonCell.size(CAPACITY)

words = st.text("aé\n", max_size=5)
documents = st.dictionaries(words, st.one_of(st.integers(-9, 9), words), max_size=3)


def private(image: bytes = bytes(SIZE)) -> memoryview:
    words = np.zeros(-(-SIZE // 8), np.int64)
    memory = memoryview(words).cast("B")[:SIZE]
    memory[:] = image
    return memory


@settings(max_examples=50, deadline=None)
@given(st.lists(documents, max_size=6))
def test_round_trip(values: list[dict[str, Any]]) -> None:
    memory = private()
    cell, reader = JsonCell(memory, CAPACITY), JsonCell(memory, CAPACITY)
    assert reader.read() == {}
    for value in values:
        cell.write(value)
        assert reader.read() == JsonCell(memory, CAPACITY).read() == value


@settings(max_examples=100, deadline=None)
@given(st.lists(documents, min_size=1, max_size=3), documents, st.data())
def test_write_cut_at_any_byte(
    earlier: list[dict[str, Any]], new: dict[str, Any], data: st.DataObject
) -> None:
    memory = private()
    cell, reader = JsonCell(memory, CAPACITY), JsonCell(memory, CAPACITY)
    for value in earlier:
        cell.write(value)
    old = reader.read()
    steps: list[bytes] = []
    code = JsonCell.write.__code__
    at_each_line(code, lambda: steps.append(bytes(memory)), lambda: cell.write(new))
    steps.append(bytes(memory))
    pairs = [(a, b) for a, b in itertools.pairwise(steps) if a != b]
    before, after = data.draw(st.sampled_from(pairs))
    changed = np.flatnonzero(np.frombuffer(before, np.uint8) != np.frombuffer(after, np.uint8))
    cut = data.draw(st.integers(changed[0], changed[-1] + 1))
    if changed[-1] < 8:
        # The word `current` is stored in one piece.
        cut = data.draw(st.sampled_from([0, 8]))
    memory[:] = after[:cut] + before[cut:]
    whole = after == steps[-1] and cut > changed[-1]
    assert reader.read() in (old, new)
    assert JsonCell(memory, CAPACITY).read() in (old, new)
    if not whole:
        assert reader.read() == old
    # A restarted writer goes on from whatever it finds.
    JsonCell(memory, CAPACITY).write({"next": 1})
    assert reader.read() == JsonCell(memory, CAPACITY).read() == {"next": 1}


def test_damaged_document_keeps_the_previous() -> None:
    memory = private()
    cell, reader = JsonCell(memory, CAPACITY), JsonCell(memory, CAPACITY)
    cell.write({"a": 1})
    assert reader.read() == {"a": 1}
    cell.write({"a": 2})
    at = bytes(memory).index(b'{"a": 2}')
    memory[at + 6] ^= 1
    assert reader.read() == {"a": 1}
    assert JsonCell(memory, CAPACITY).read() == {}
    memory[at + 6] ^= 1
    assert reader.read() == {"a": 2}


@pytest.mark.parametrize("length", [0, CAPACITY + 1, 2**32 - 1])
def test_impossible_length_is_not_followed(length: int) -> None:
    memory = private()
    JsonCell(memory, CAPACITY).write({"a": 1})
    half = 8 + 16 + CAPACITY
    memory[half + 8 : half + 12] = length.to_bytes(4, "little")
    assert JsonCell(memory, CAPACITY).read() == {}


def test_too_long_a_document_is_refused_and_changes_nothing() -> None:
    memory = private()
    cell = JsonCell(memory, CAPACITY)
    cell.write({"a": 1})
    image = bytes(memory)
    with pytest.raises(ValueError, match="document of 301 bytes in a cell of 256"):
        cell.write({"a": "x" * 292})
    assert bytes(memory) == image


def test_unchanged_document_is_not_parsed_again() -> None:
    memory = private()
    JsonCell(memory, CAPACITY).write({"a": 1})
    reader = JsonCell(memory, CAPACITY)
    assert reader.read() is reader.read()


@pytest.mark.process
def test_sequence_never_goes_back(shared: Callable[[int], memoryview], forked: Forked) -> None:
    memory = shared(SIZE)
    cell = JsonCell(memory, CAPACITY)

    def write_for_ever() -> None:
        number = 0
        while True:
            number += 1
            cell.write({"number": number})

    pid = forked.start(write_for_ever)
    highest = reads = 0
    while reads < 30_000 or highest < 10_000:
        sequence = cell.sequence
        assert sequence >= highest
        highest = sequence
        reads += 1
    os.kill(pid, signal.SIGKILL)
    assert forked.wait(pid) == -signal.SIGKILL
