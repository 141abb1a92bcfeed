"""Writers killed under full load: no reader ever sees a torn frame, row, deposit, record or state.

What each line of a write leaves is looked at in the tests of each structure.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable

import numpy as np
import pytest

from tests.forked import Forked, eventually
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
