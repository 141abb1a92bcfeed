"""A machine that carries out loads and stores in every order which ARM64 allows; it runs our code.

The writer's own code runs once and is recorded: which aligned words it stored, and between which
fences. Another process sees these stores in any order that keeps to the fences, and to the order of
the stores to one word. Then the reader's own code runs, many times. Before each of its lines every
word of the memory that the writer has touched takes the value of some moment of such an order; the
moments between two fences of the reader lie anywhere in a stretch of time, and no stretch begins
before the one in front of it ends. So what a line loads may be older than what the line before it
has loaded, unless there was a fence. Within a line each word has a moment of its own.

Dependencies, which order some loads on ARM64, are not known here: the machine is weaker than that.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType

import numpy as np

import rtagent
from rtagent.memory import ordering
from tests.forked import at_each_line

WORD = 8
Place = tuple[str, int]
"""A file and a line."""
TRACED = tuple(str(Path(rtagent.__file__).parent / name) for name in ("memory", "staggering"))
UNTRACED = str(Path(ordering.__file__))


@dataclass
class Stores:
    """What a writer stored, in the order of the program.

    Attributes:
        epochs: the stores between two fences: numbers of words, and what they were set to.
        fences: that it came past.
    """

    epochs: list[list[tuple[int, int]]] = field(default_factory=lambda: [[]])
    fences: set[Place] = field(default_factory=set)

    def shuffled(self, rng: random.Random) -> list[tuple[int, int]]:
        """An order in which another process may see them."""
        found: list[tuple[int, int]] = []
        for epoch in self.epochs:
            by_word: dict[int, list[int]] = {}
            for word, value in epoch:
                by_word.setdefault(word, []).append(value)
            words = [word for word, _ in epoch]
            rng.shuffle(words)
            left = {word: iter(values) for word, values in by_word.items()}
            found += [(word, next(left[word])) for word in words]
        return found


def recorded(
    memory: memoryview, write: Callable[[], object], without: Container[Place] = ()
) -> Stores:
    """Run a writer, and say what it stored.

    Args:
        memory: that it writes to.
        write: the writer.
        without: where fences are left out.
    """
    found = Stores()
    words = np.frombuffer(memory, np.int64, len(memory) // WORD)
    before = words.copy()

    def look() -> None:
        changed = np.flatnonzero(words != before)
        found.epochs[-1] += [(int(word), int(words[word])) for word in changed]
        before[changed] = words[changed]

    def fence(place: Place) -> None:
        look()
        found.fences.add(place)
        if place not in without:
            found.epochs.append([])

    with _fence_replaced(fence), at_each_line(_shares_memory, look):
        write()
    look()
    return found


class WeakReader:
    """Runs a reader on a memory in which a writer is at work.

    Args:
        memory: as it was before the writer's stores; left anyhow.
        stores: the writer's.
        rng: chooses what happens.
    """

    def __init__(self, memory: memoryview, stores: Stores, rng: random.Random) -> None:
        self._words = np.frombuffer(memory, np.int64, len(memory) // WORD)
        self._touched = np.unique([word for epoch in stores.epochs for word, _ in epoch])
        self._before = self._words[self._touched].copy()
        self._stores = stores
        self._rng = rng
        self._numbers = np.random.default_rng(rng.randrange(2**32))

    def run(self, read: Callable[[], object], without: Container[Place] = ()) -> set[Place]:
        """Run the reader once; the fences that it came past.

        Args:
            read: raises if it finds what it must not.
            without: where fences are left out.
        """
        self._begin()
        passed: set[Place] = set()

        def fence(place: Place) -> None:
            passed.add(place)
            if place not in without:
                self._advance()

        with _fence_replaced(fence), at_each_line(_shares_memory, self._load):
            read()
        return passed

    def _begin(self) -> None:
        order = self._stores.shuffled(self._rng)
        self._end = len(order)
        rows = {int(word): row for row, word in enumerate(self._touched)}
        most = max(np.bincount([rows[word] for word, _ in order]))
        # A word has its nth value from the moment in column n of `_since` on.
        self._values = np.repeat(self._before[:, None], most + 1, axis=1)
        self._since = np.full((len(rows), most), self._end + 1)
        seen = [0] * len(rows)
        for moment, (word, value) in enumerate(order, 1):
            row = rows[word]
            self._since[row, seen[row]] = moment
            seen[row] += 1
            self._values[row, seen[row] :] = value
        self._low = self._high = 0
        self._advance()

    def _advance(self) -> None:
        """Go to the next stretch; often an empty one, or one up to the end."""
        self._low = self._high
        self._high = self._rng.choice(
            (self._low, self._end, self._rng.randint(self._low, self._end))
        )

    def _load(self) -> None:
        if self._rng.random() < 0.5:
            # Each end of the stretch by itself is where most goes wrong.
            ends = self._numbers.integers(0, 2, len(self._touched))
            moments = np.where(ends, self._high, self._low)
        else:
            moments = self._numbers.integers(self._low, self._high + 1, len(self._touched))
        columns = (self._since <= moments[:, None]).sum(axis=1)
        self._words[self._touched] = self._values[np.arange(len(columns)), columns]


@contextmanager
def _fence_replaced(fence: Callable[[Place], None]) -> Iterator[None]:
    original = ordering.fence

    def called() -> None:
        caller = sys._getframe(1)
        fence((caller.f_code.co_filename, caller.f_lineno))

    ordering.fence = called
    try:
        yield
    finally:
        ordering.fence = original


def _shares_memory(code: CodeType) -> bool:
    """Whether code deals with shared memory."""
    return code.co_filename.startswith(TRACED) and code.co_filename != UNTRACED
