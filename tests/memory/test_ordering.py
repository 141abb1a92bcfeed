"""Shared memory on a processor that reorders: with the fences nothing goes wrong, and with one less
something does.

The code under test is rtagent's own; `weak_machine` carries it out, `announced` says what must
hold.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

import rtagent
from tests.memory.announced import CASES, Documents, Published
from tests.memory.announced_case import Case
from tests.memory.announced_rings import Deposits, Rows, RowsAgain
from tests.memory.weak_machine import Place, WeakReader, recorded

RUNS = 150
SEARCHES = (30, 600)
"""Runs of each way in which a missing fence is looked for; for most some tens are enough."""
SEED = 20_240_229
FOLDER = Path(rtagent.__file__).parent
FENCES = [
    (str(path), line)
    for path in sorted(FOLDER.rglob("*.py"))
    for line, text in enumerate(path.read_text().splitlines(), 1)
    if text.strip() == "ordering.fence()"
]


class Scene:
    """A writer at work, and readers beside it, in as many orders as one likes."""

    def __init__(self, kind: type[Case], way: str, without: Container[Place] = ()) -> None:
        self.kind, self.way, self.without = kind, way, without
        self.memory = memoryview(bytearray(-(-kind.size() // 8) * 8))
        self.rng = random.Random(SEED)
        with self._replaced():
            self._write()
        self.fences = set(self.stores.fences)

    def run(self, runs: int) -> None:
        """Raises if anything goes wrong."""
        machine = WeakReader(self.memory, self.stores, self.rng)
        with self._replaced():
            for _ in range(runs):
                reader = self.kind(self.memory)
                read = reader.announced if self.way == "announced" else self._check(reader)
                self.fences |= machine.run(read, self.without)

    def _write(self) -> None:
        self.kind.format(self.memory)
        writer, first = self.kind(self.memory), self.kind.history
        for number in range(first):
            writer.write(number)
        before = bytes(self.memory)
        numbers = range(first, first + (self.kind.writes if self.way == "check" else 1))
        self.stores = recorded(self.memory, lambda: [*map(writer.write, numbers)], self.without)
        self.memory[:] = before

    @contextmanager
    def _replaced(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for each in self.kind.always + (self.kind.once if self.way == "announced" else ()):
                patch.setattr(*each)
            yield

    def _check(self, reader: Case) -> Callable[[], None]:
        return lambda: reader.check(self.rng)


WAYS = [(kind, way) for kind in CASES for way in ("announced", "check")]


@pytest.mark.parametrize(
    ("kind", "way"), WAYS, ids=[f"{kind.__name__}-{way}" for kind, way in WAYS]
)
def test_whatever_the_order_nothing_goes_wrong(kind: type[Case], way: str) -> None:
    Scene(kind, way).run(RUNS)


@cache
def ways_past(fence: Place) -> list[tuple[type[Case], str]]:
    """The ways to write and read that come past a fence."""
    return [way for way, fences in passed().items() if fence in fences]


@cache
def passed() -> dict[tuple[type[Case], str], set[Place]]:
    scenes = {way: Scene(*way) for way in WAYS}
    for scene in scenes.values():
        scene.run(30)
    return {way: scene.fences for way, scene in scenes.items()}


def goes_wrong(kind: type[Case], way: str, without: Place, runs: int) -> bool:
    try:
        Scene(kind, way, [without]).run(runs)
    except Exception:
        return True
    return False


@pytest.mark.parametrize("fence", FENCES, ids=lambda fence: f"{Path(fence[0]).name}:{fence[1]}")
def test_each_fence_is_needed(fence: Place) -> None:
    assert any(goes_wrong(*way, fence, runs) for runs in SEARCHES for way in ways_past(fence))


class Everywhere(Container[Place]):
    """Every place there is."""

    def __contains__(self, place: object) -> bool:
        return True


@pytest.mark.parametrize(
    "kind",
    [Rows, RowsAgain, Deposits, Published, Documents],
    ids=lambda kind: kind.__name__,
)
def test_checksums_alone_keep_out_what_is_torn(
    kind: type[Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind, "always", ())
    Scene(kind, "check", Everywhere()).run(RUNS)


@pytest.mark.parametrize("kind", [Rows, Published], ids=lambda kind: kind.__name__)
def test_without_checksums_and_fences_the_torn_comes_in(kind: type[Case]) -> None:
    assert kind.always, "the checksums are replaced"
    with pytest.raises(AssertionError):
        Scene(kind, "check", Everywhere()).run(SEARCHES[-1])
