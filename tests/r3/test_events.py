"""Decisions of the deadline controller as events."""

from __future__ import annotations

from typing import Any

import pytest

from rtagent.clock import VirtualClock
from rtagent.memory.horizon import KINDS, Decision, HorizonRecord
from rtagent.r3.events import DecisionEvents
from tests.conftest import private


class Controller:
    """Decides what a test says, and hears what is told about it."""

    def __init__(self) -> None:
        self.record = private(HorizonRecord)
        self.clock = VirtualClock(100.0)
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.events = DecisionEvents(
            self.record, self.clock, lambda kind, **details: self.told.append((kind, details))
        )

    def decide(self, kind: str, before: int = 32, after: int = 32) -> None:
        self.record.add(Decision(kind=KINDS.index(kind), before=before, after=after))


@pytest.fixture
def controller() -> Controller:
    return Controller()


def test_every_outcome_is_an_event(controller: Controller) -> None:
    for kind in ("met", "missed", "early-exit"):
        controller.decide(kind)
    controller.events.publish()
    controller.events.publish()
    assert [(kind, said["outcome"]) for kind, said in controller.told] == [
        ("horizon", "met"), ("horizon", "missed"), ("horizon", "early-exit"),
    ]


def test_at_most_one_horizon_of_each_outcome_a_second_is_an_event(controller: Controller) -> None:
    """As with a deadline of no time at all, or a budget of one batch."""
    for number in range(100):
        controller.decide("missed" if number % 4 else "met")
        controller.events.publish()
        controller.clock.advance(0.005)
    assert [said["outcome"] for _, said in controller.told] == ["met", "missed"]
    controller.clock.advance(1.0)
    for kind in ("missed", "met"):
        controller.decide(kind)
    controller.events.publish()
    told = [(said["outcome"], said["untold"]) for _, said in controller.told[2:]]
    assert told == [("missed", 74), ("met", 24)]


def test_every_horizon_of_at_least_a_second_is_an_event(controller: Controller) -> None:
    for _ in range(5):
        controller.decide("met")
        controller.events.publish()
        controller.clock.advance(1.0)
    assert [said["untold"] for _, said in controller.told] == [0] * 5


def test_a_decision_during_a_publication_is_published_once(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    decisions = HorizonRecord.decisions

    def late(record: HorizonRecord, **wanted: Any) -> list[Decision]:
        monkeypatch.undo()
        controller.decide("missed")
        return decisions(record, **wanted)

    controller.decide("met")
    monkeypatch.setattr(HorizonRecord, "decisions", late)
    controller.events.publish()
    controller.events.publish()
    assert [said["outcome"] for _, said in controller.told] == ["met", "missed"]


def test_a_new_batch_size_is_an_event_with_its_inputs(controller: Controller) -> None:
    # The first size of all is no change.
    controller.decide("settings", 0, 32)
    controller.decide("step")
    controller.decide("step", 32, 40)
    controller.events.publish()
    ((kind, said),) = controller.told
    assert kind == "batch_size"
    assert (said["why"], said["before"], said["after"], said["untold"]) == ("step", 32, 40, 0)
    assert {"time_ratio", "data_ratio", "cap", "b_min"} <= set(said)


def test_at_most_one_new_size_a_second_is_an_event(controller: Controller) -> None:
    for size in range(32, 42):
        controller.decide("step", size, size + 1)
        controller.events.publish()
        controller.clock.advance(0.01)
    assert len(controller.told) == 1
    controller.clock.advance(1.0)
    controller.decide("step", 42, 50)
    controller.events.publish()
    _, said = controller.told[-1]
    assert (said["after"], said["untold"]) == (50, 9)
