"""What the samples of a soak say."""

from __future__ import annotations

import random
from typing import Any

import pytest

from benchmarks.reliability.soak import Soak, growth, passed

FINE = {
    "died_by_themselves": 0, "rows_lost_or_torn": 0, "untrue_figures": [], "not_recovered": None,
}


@pytest.mark.parametrize(("last", "kept"), [(101.0, True), (103.0, False)])
def test_memory_that_grows_by_two_percent_fails(last: float, kept: bool) -> None:
    found = growth([{"all MiB": 100.0}] * 5 + [{"all MiB": last}])
    assert found["memory_growth"] == pytest.approx(last / 100.0 - 1.0)
    assert passed(FINE | found) is kept


def test_a_run_too_short_for_a_sample_says_nothing_of_memory() -> None:
    found = growth([])
    assert found["memory_growth"] is None
    assert not passed(FINE | found)


def test_a_killed_process_that_is_not_wanted_any_more_excuses_no_other_death(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unused: Any = None
    soak = Soak(unused, unused, random.Random(0))
    restarts = {"inference 1": 1, "learner 0": 0}
    monkeypatch.setattr(Soak, "roles", lambda self: [
        {"name": name, "restarts": count} for name, count in restarts.items()
    ])
    soak.killed.update({"inference 1": 1, "inference 5": 1})
    soak._count_deaths()
    assert soak.died_by_themselves == 0
    restarts["learner 0"] = 1
    soak._count_deaths()
    assert soak.died_by_themselves == 1
