"""The choice between steps with a plan and without."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from random import Random

import pytest

from rtagent.placement.trial import FIRST_STEPS, LOOK_EVERY, WINDOW, Trial


def run(trial: Trial, steps: int, seconds: Callable[[bool, int], float]) -> list[bool]:
    """Whether each step followed the plan."""
    chosen = []
    for step in range(steps):
        way = trial.choose()
        trial.note(way, seconds(way, step))
        chosen.append(way)
    return chosen


def test_both_ways_are_measured_in_turns_first() -> None:
    chosen = run(Trial(), 2 * (WINDOW + FIRST_STEPS), lambda way, step: 1.0)
    assert chosen == [False, True] * (WINDOW + FIRST_STEPS)


def test_a_faster_plan_stays_and_is_looked_at_again() -> None:
    trial = Trial()
    chosen = run(trial, 1000, lambda way, step: 0.6 if way else 1.0)
    assert trial.planned
    later = chosen[200:]
    assert later.count(False) == len(later) // LOOK_EVERY


def test_a_slower_plan_is_taken_back() -> None:
    trial = Trial()
    chosen = run(trial, 1000, lambda way, step: 1.1 if way else 1.0)
    assert not trial.planned
    assert chosen[200:].count(True) <= 800 // LOOK_EVERY


def test_a_plan_that_is_far_slower_costs_next_to_nothing() -> None:
    trial = Trial()
    chosen = run(trial, 20_000, lambda way, step: 40.0 if way else 1.0)
    later = chosen[1000:]
    assert 1 <= later.count(True) * 40.0 <= 0.03 * len(later)


def test_steps_that_take_no_time_by_the_clock_are_chosen_between() -> None:
    trial = Trial()
    assert set(run(trial, 200, lambda way, step: 0.0)) == {True, False}
    assert trial.planned


def test_a_plan_comes_back_when_the_machine_has_changed() -> None:
    trial = Trial()
    run(trial, 200, lambda way, step: 1.1 if way else 1.0)
    assert not trial.planned
    run(trial, 2000, lambda way, step: 0.5 if way else 1.0)
    assert trial.planned


SLOW_FIRST = (*[100.0] * FIRST_STEPS, 1.1, 1.1, 1.1, 0.9)
"""Seconds of a plan's steps, the last for all further ones. Were the first counted, a median of 1.1
would take it back."""


@pytest.mark.parametrize(("steps", "seconds"), [
    # The first steps, a difference within the noise, and a single slow step.
    (60, lambda way, step: SLOW_FIRST[min(step // 2, len(SLOW_FIRST) - 1)] if way else 1.0),
    (500, lambda way, step: 1.0 + 0.01 * way),
    (500, lambda way, step: 50.0 if step == 300 else 1.0 - 0.2 * way),
])
def test_what_is_no_slower_plan_changes_nothing(
    steps: int, seconds: Callable[[bool, int], float]
) -> None:
    trial = Trial()
    run(trial, steps, seconds)
    assert trial.planned


def test_noise_changes_it_ever_more_rarely() -> None:
    trial, random = Trial(), Random(0)
    states = []
    for _ in range(20_000):
        trial.note(trial.choose(), random.uniform(0.5, 1.5))
        states.append(trial.planned)
    changes = sum(before != after for before, after in pairwise(states))
    assert 1 <= changes <= 8
