"""How many updates the ticks of a run allow."""

from __future__ import annotations

from rtagent.learning.pace import CREDIT_TICKS, Pace


def updates(pace: Pace, ticks: range, rate: float, most: int = 1) -> int:
    """How many are made: at each tick all that are due, but at most so many."""
    made = 0
    for tick in ticks:
        for _ in range(most):
            if not pace.due(tick, rate):
                break
            pace.spend()
            made += 1
    return made


def test_updates_are_as_many_as_the_ticks_earn() -> None:
    assert updates(Pace(100), range(101, 201), 0.25) == 25
    assert updates(Pace(0), range(1, 101), 3.0, most=10) == 300


def test_no_more_are_saved_up_than_those_of_some_ticks() -> None:
    pace = Pace(0)
    assert pace.due(100_000, 0.5)
    assert updates(pace, range(100_000, 100_001), 0.5, most=1000) == CREDIT_TICKS * 0.5


def test_updates_made_without_a_bound_are_not_owed_later() -> None:
    pace = Pace(0)
    assert updates(pace, range(1, 1001), 0.0, most=5) == 5000
    assert updates(pace, range(1001, 1101), 1.0) == 100
