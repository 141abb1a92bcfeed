"""Writers killed inside writes: no reader ever sees a torn frame, row, deposit, weight or document.

Once at random moments under full load, and once before each single line of each write.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from tests.forked import Forked, at_each_line, eventually
from tests.memory.structures import STRUCTURES, Structure

pytestmark = pytest.mark.process
KILLS = 48
LONGEST_PAUSE_S = 0.08
READERS = 2
SEED = 20_240_229
LEAST_WRITES = 1000
LEAST_READS = 1000
ENOUGH_S = 300.0

Shared = Callable[[int], memoryview]


class Stress:
    """Writers that are killed and replaced, and readers that check and count."""

    def __init__(self, shared: Shared, forked: Forked) -> None:
        self.forked = forked
        self.memories = {kind: shared(kind.size()) for kind in STRUCTURES}
        for kind, memory in self.memories.items():
            kind.format(memory)
        self.words = np.frombuffer(shared(4096), np.int64)
        self.reads = self.words[8:].reshape(-1, 8)
        self.writers = {kind: self.start_writer(kind) for kind in STRUCTURES}
        self.readers = [
            forked.start(lambda index=index: self.read(index)) for index in range(READERS)
        ]

    def start_writer(self, kind: type[Structure]) -> int:
        return self.forked.start(lambda: self.write(kind))

    def write(self, kind: type[Structure]) -> None:
        structure = kind(self.memories[kind])
        structure.resume()
        number = structure.newest
        while True:
            number += 1
            structure.write(number)

    def read(self, index: int) -> None:
        rng = random.Random(SEED + index)
        structures = [kind(memory) for kind, memory in self.memories.items()]
        while not self.words[0]:
            for column, structure in enumerate(structures):
                self.reads[index, column] += structure.check(rng)

    def kill_one(self, kind: type[Structure]) -> bool:
        """Kill a writer and start the next; whether it was killed inside a write."""
        assert self.forked.kill(self.writers[kind]) == -signal.SIGKILL, "the writer had failed"
        inside = kind(self.memories[kind]).half_written
        self.writers[kind] = self.start_writer(kind)
        return inside

    def progress(self, column: int) -> tuple[int, int]:
        """Things written, and read by the slower reader."""
        kind = STRUCTURES[column]
        written = kind(self.memories[kind]).newest + 1
        return written, int(self.reads[:READERS, column].min())

    def enough(self) -> bool:
        found = [self.progress(column) for column in range(len(STRUCTURES))]
        return all(written >= LEAST_WRITES and read >= LEAST_READS for written, read in found)


def test_no_torn_reads_while_writers_are_killed(shared: Shared, forked: Forked) -> None:
    stress = Stress(shared, forked)
    rng = random.Random(SEED)
    inside = 0
    for kill in range(KILLS):
        time.sleep(rng.uniform(0.0, LONGEST_PAUSE_S))
        inside += stress.kill_one(STRUCTURES[kill % len(STRUCTURES)])
    eventually(stress.enough, ENOUGH_S)
    stress.words[0] = 1
    # A reader that saw anything torn has left with a traceback.
    assert [forked.wait(pid) for pid in stress.readers] == [0] * READERS
    for pid in stress.writers.values():
        assert forked.kill(pid) == -signal.SIGKILL
    assert inside > 0, "no kill hit a write: the test shows nothing"
    for column, kind in enumerate(STRUCTURES):
        written, read = stress.progress(column)
        assert written >= LEAST_WRITES, kind
        assert read >= LEAST_READS, kind


@pytest.mark.parametrize("kind", STRUCTURES, ids=lambda kind: kind.__name__)
def test_killed_before_each_line_of_a_write(
    kind: type[Structure], shared: Shared, forked: Forked
) -> None:
    memory = shared(kind.size())
    kind.format(memory)
    first = kind(memory)
    for number in range(300):
        first.write(number)
    reader, rng = kind(memory), random.Random(SEED)
    lines = 0
    while True:
        lines += 1
        newest = kind(memory).newest
        code = forked.run(partial(_write_and_die, kind, memory, newest + 1, lines))
        assert kind(memory).newest in (newest, newest + 1)
        for _ in range(50):
            reader.check(rng)
            kind(memory).check(rng)
        if code == 0:
            break
        assert code == -signal.SIGKILL
        # The next process goes on from what the dead one left.
        assert forked.run(partial(_resume, kind, memory)) == 0
        assert kind(memory).newest > newest
        assert sum(reader.check(rng) for _ in range(50)) > 0
    assert lines > 4, "the write has not been interrupted"


def _write_and_die(kind: type[Structure], memory: memoryview, number: int, lines: int) -> None:
    """Write, but be killed before the given line of the write."""
    left = lines

    def reached() -> None:
        nonlocal left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    structure = kind(memory)
    with at_each_line(kind.codes.__contains__, reached):
        structure.write(number)


def _resume(kind: type[Structure], memory: memoryview) -> None:
    structure = kind(memory)
    structure.resume()
    structure.write(structure.newest + 1)
