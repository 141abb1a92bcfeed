"""Shared memory and locks that forked children see too, and what a killed writer may leave."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

import numpy as np
import pytest

from rtagent.memory.arena import Arena
from rtagent.memory.robust_lock import RobustLock
from tests.forked import Forked, at_each_line

WORD = 8
CUTS = 5


@pytest.fixture
def make_arena() -> Iterator[Callable[..., Arena]]:
    """Makes arenas that are closed after the test."""
    arenas: list[Arena] = []

    def make(size: int, **options: bool) -> Arena:
        arenas.append(Arena("test", size, **options))
        return arenas[-1]

    yield make
    for arena in arenas:
        arena.close()


@pytest.fixture
def shared(make_arena: Callable[..., Arena]) -> Callable[[int], memoryview]:
    """Zeroed memory, shared with children that are forked later."""

    def make(size: int) -> memoryview:
        return memoryview(make_arena(size).handle.map())

    return make


@pytest.fixture
def is_free(forked: Forked) -> Callable[[Arena], bool]:
    """Whether another process could take the lock of an arena: one cannot shut itself out."""

    def ask(arena: Arena) -> bool:
        return forked.run(lambda: os._exit(not RobustLock(arena.handle).try_enter())) == 0

    return ask


@pytest.fixture
def overtaken() -> Iterator[Callable[[np.ndarray, Callable[[], object]], np.ndarray]]:
    """Makes a view of an array: something happens as soon as its next read has copied."""
    coming: list[Callable[[], object]] = []

    def copied(values: np.ndarray) -> Any:
        found = np.array(values)
        if coming:
            coming.pop()()
        return found

    class View(np.ndarray):
        def __getitem__(self, key: Any) -> Any:
            # A slice copies nothing; its `copy` does.
            if isinstance(key, slice):
                return super().__getitem__(key)
            return copied(np.asarray(self)[key])

        def copy(self, *_: Any) -> Any:
            return copied(np.asarray(self))

    def make(array: np.ndarray, during: Callable[[], object]) -> np.ndarray:
        coming.append(during)
        return array.view(View)

    yield make
    assert not coming, "it has not been read"


@pytest.fixture
def images() -> Callable[..., list[bytes]]:
    """What memory may hold if a writer is killed: images(memory, call, *codes of the writer)."""
    return _images


def _images(memory: memoryview, call: Callable[[], object], *codes: CodeType) -> list[bytes]:
    steps: list[bytes] = []
    with at_each_line(codes.__contains__, lambda: steps.append(bytes(memory))):
        call()
    steps.append(bytes(memory))
    found = [steps[0]]
    for before, after in itertools.pairwise(steps):
        found += [*_halfway(before, after), after]
    return found


def _halfway(before: bytes, after: bytes) -> Iterator[bytes]:
    """A store wider than a word may be cut anywhere; a word is stored in one piece."""
    changed = np.flatnonzero(np.frombuffer(before, np.uint8) != np.frombuffer(after, np.uint8))
    if len(changed) and changed[0] // WORD != changed[-1] // WORD:
        for cut in np.linspace(changed[0] + 1, changed[-1], CUTS).astype(int):
            yield after[:cut] + before[cut:]
