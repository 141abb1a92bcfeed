"""The coordinator's decisions are carried out, and a lack of memory is reported once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from rtagent.errors import UserError
from rtagent.r3.publication import Changes
from rtagent.supervisor.memory_keeping import MemoryKeeping

DESIRED: Any = object()


class Stage:
    """A memory that gives back a little at a time, or refuses."""

    def __init__(self) -> None:
        self.limits: list[int] = []
        self.left = 0
        self.refusing = False
        self.told: list[str] = []
        self.settled: list[bool] = []
        self.changes: Changes | None = None
        self.keeping = MemoryKeeping(
            SimpleNamespace(maintain=self._maintain),  # type: ignore[arg-type]
            SimpleNamespace(ledger=SimpleNamespace(newest=7)),  # type: ignore[arg-type]
            SimpleNamespace(ticks_limit=100, step=self._step),  # type: ignore[arg-type]
            SimpleNamespace(event=self._event),  # type: ignore[arg-type]
        )

    def _maintain(self, newest: int, limit: int) -> bool:
        assert newest == 7
        self.limits.append(limit)
        if self.refusing:
            raise UserError("no room")
        self.left = max(0, self.left - 1)
        return self.left == 0

    def _step(self, now: float, desired: Any, settled: bool) -> Changes | None:
        self.settled.append(settled)
        return self.changes

    def _event(self, kind: str, **details: Any) -> None:
        self.told.append(details["error"])


def test_the_coordinator_is_told_whether_the_rings_are_settled() -> None:
    stage = Stage()
    stage.left = 2
    assert [stage.keeping.step(0.0, DESIRED) for _ in range(2)] == [None, None]
    assert stage.settled == [False, True]
    assert stage.limits == [100, 100]


def test_memory_that_is_short_is_given_back_at_once_and_other_memory_bit_by_bit() -> None:
    stage = Stage()
    stage.left = 5
    stage.keeping.give_back(Changes(None, 50))
    assert stage.limits == []
    stage.keeping.give_back(Changes(None, 50, urgent=True))
    assert stage.limits == [50] * 5


def test_a_lack_of_memory_is_told_once_until_it_is_over() -> None:
    stage = Stage()
    stage.refusing = True
    for _ in range(3):
        stage.keeping.step(0.0, DESIRED)
    assert stage.told == ["no room"]
    # Nothing is gained by asking again at once.
    stage.keeping.give_back(Changes(None, 50, urgent=True))
    assert stage.settled == [True] * 3
    stage.refusing = False
    stage.keeping.step(0.0, DESIRED)
    stage.refusing = True
    stage.keeping.step(0.0, DESIRED)
    assert stage.told == ["no room"] * 2
