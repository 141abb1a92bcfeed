"""The second count of learning, between looks that are far apart."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.recount.agreement import agrees
from benchmarks.recount.learning import (
    horizon,
    horizon_between,
    least_updates_acting,
    sizes_between,
    update_rate,
)
from benchmarks.recount.raw_ledger import AGENT, DEFAULT, ROW
from benchmarks.recount.witness import View
from rtagent.memory.horizon import KINDS

WANTED = {"data_budget": 4000, "deadline_s": 2.0}


def view(learned: int, *ended: int, at: float = 1.0) -> View:
    """A look after so many samples, with the horizons whose end has been seen."""
    learners = [{"samples_consumed": learned, "update_ns": 1_000_000}]
    decisions = [
        SimpleNamespace(kind=KINDS.index("met"), consumed=each, time_ns=0) for each in ended
    ]
    running = SimpleNamespace(mode=1, running=1, batch_size=32)
    nothing: Any = np.zeros(0)
    return View(at, nothing, nothing, [], learners, running, decisions, {})


def test_a_horizon_that_runs_is_told_to_a_few_updates() -> None:
    found = [horizon(view(3000), WANTED)["r3.consumed"], horizon(view(3100), WANTED)["r3.consumed"]]
    assert agrees(3050, found)
    assert not agrees(2000, found)
    assert not agrees(3500, found)


def test_the_end_of_a_horizon_may_not_have_been_seen() -> None:
    found = [horizon(view(4160), WANTED)["r3.consumed"]]
    assert agrees(64, found)
    assert not agrees(4500, found)


def test_a_horizon_that_ends_between_two_looks() -> None:
    before, after = view(3000), view(5500, 4000)
    looks = [horizon(each, WANTED)["r3.consumed"] for each in (before, after)]
    assert not agrees(500, looks)
    between = horizon_between(before, after, WANTED)
    assert agrees(500, [*looks, between["r3.consumed"]])
    assert agrees(3990, [*looks, between["r3.consumed"]])
    assert agrees(1.9, [between["r3.elapsed_s"]])
    assert horizon_between(before, view(3100), WANTED) == {}


def test_between_two_looks_a_batch_size_may_go_up_and_down() -> None:
    before, after = view(3000), view(3100)
    after.decisions.extend(SimpleNamespace(after=each) for each in (76, 73, 81))
    found = sizes_between(before, after)["learning.batch_size"]
    assert agrees(73, [76, 81, found])
    assert not agrees(70, [76, 81, found])
    assert sizes_between(before, before) == {}


def test_a_rate_counts_from_any_moment_between_two_looks() -> None:
    looks = [(0.0, [0]), (2.0, [0]), (3.0, [20]), (4.0, [60])]
    witness: Any = SimpleNamespace(applied=looks, since={("learner", 0): 0.0})
    found = [update_rate(witness, 4.0, 1)]
    # The first update was made at 2.9 s, after a second of rest.
    assert agrees(60 / 1.1, found)
    assert agrees(60 / 1.9, found)
    assert not agrees(70.0, found)
    assert not agrees(5.0, found)


def test_without_an_update_a_rate_is_unknown_or_zero() -> None:
    witness: Any = SimpleNamespace(applied=[(0.0, [0]), (2.0, [0])], since={("learner", 0): 0.0})
    found = [update_rate(witness, 2.0, 1)]
    assert agrees(None, found)
    assert agrees(0.0, found)
    assert not agrees(1.0, found)


def test_an_action_may_be_of_weights_that_are_long_gone() -> None:
    rows = np.zeros(5, ROW)
    rows["source"] = AGENT, AGENT, AGENT, AGENT, DEFAULT
    rows["worker"] = 2, 0, 1, 0, -1
    rows["weights_version"] = 2, 3, 5, 9, 0
    acted = replace(view(0), rows=rows, learners=[{"checkpoints": 1}])
    # Process 1 acted by version 5, and one of the four before it is a checkpoint's.
    # Process 2 acts no more.
    config = {"inference": {"processes": 2}, "learning": {"publish_every": 20}}
    assert least_updates_acting(acted, config) == 60
    assert least_updates_acting(acted, config | {"inference": {"processes": 3}}) == 0
    assert least_updates_acting(replace(acted, rows=rows[:0]), config) == 0
