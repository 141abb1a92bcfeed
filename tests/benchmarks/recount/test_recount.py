"""Every figure of `/v1/stats`, counted again by somebody else while the daemon runs."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from benchmarks.recount import recount
from benchmarks.recount.figures import NOT_RECOUNTED
from benchmarks.recount.recount import CONFIGURATIONS, LOSS_TRIALS, TRIALS, Line, leaves, measure
from tests.telemetry.counted_run import Run

LEAST_COUNTED = 0.8
"""Share of the figures; the others have a reason."""


# The bound on the inaction of "unstaggered" needs a quiet machine, and so do the three learners of
# "horizons": at idle priority one may stand between two notes for as long as a comparison takes.
ALONE = ("unstaggered", "horizons")


@pytest.mark.process
@pytest.mark.parametrize("name", [
    pytest.param(each, marks=[pytest.mark.alone] if each in ALONE else [])
    for each in CONFIGURATIONS
])
def test_every_figure_is_what_it_says(name: str) -> None:
    comparisons = measure(name)
    assert comparisons
    for lines in comparisons:
        assert [line for line in lines if line.verdict == "differs"] == []
        assert [line for line in lines if line.verdict == "not counted"] == []
        same = sum(line.verdict == "same" for line in lines)
        assert same >= LEAST_COUNTED * len(lines)
    said = {line.figure: line.said for line in comparisons[-1]}
    if name == "unstaggered":
        # As many ticks between two actions as inaction leaves, and not N times fewer.
        assert said["actions.inaction_fraction"] > 0.40
        between = said["actions.interaction_ms.mean"] * 60 / 1e3
        assert between == pytest.approx(1 / (1 - said["actions.inaction_fraction"]), rel=0.05)
    if name == "killed":
        assert said["inference.workers[1].restarts"] == 2
        assert said["learning.workers[0].restarts"] == 1
    if name == "horizons":
        assert said["r3.horizons.met"] + said["r3.horizons.missed"] >= 2


def test_what_is_not_counted_is_a_figure_and_has_a_reason() -> None:
    run = Run()
    run.roles(
        {"role": "inference", "index": 0, "pid": 7, "state": "running", "restarts": 0},
        {"role": "learner", "index": 0, "pid": 8, "state": "running", "restarts": 0},
    )
    figures = {path.replace("[0]", "[]") for path, _ in leaves(run.reader.collect())}
    assert set(NOT_RECOUNTED) <= figures
    assert all(NOT_RECOUNTED.values())


def test_every_figure_has_a_path() -> None:
    figures = {"a": {"b": 1, "workers": [{"id": 0}, {"id": 1}]}, "c": None}
    paths = {"a.b": 1, "a.workers[0].id": 0, "a.workers[1].id": 1, "c": None}
    assert dict(leaves(figures)) == paths


@pytest.mark.parametrize(
    ("wrong", "looks"),
    [
        ([], 1), (["a"], TRIALS), (["learning.loss"], LOSS_TRIALS),
        (["a", "learning.loss"], LOSS_TRIALS),
    ],
)
def test_only_a_loss_is_looked_at_more_often(
    monkeypatch: pytest.MonkeyPatch, wrong: list[str], looks: int
) -> None:
    run, looked = recount.Run.__new__(recount.Run), []

    def compare(_: recount.Run) -> list[Line]:
        looked.append(1)
        # From the fourth look on, "a" is right: too late.
        right = [] if len(looked) <= TRIALS else ["a"]
        return [
            Line(each, 1, 2, "differs" if each in wrong and each not in right else "same")
            for each in ("a", "learning.loss")
        ]

    monkeypatch.setattr(recount.Run, "_compare", compare)
    lines = run.compare()
    assert len(looked) == looks
    assert [line.figure for line in lines if line.verdict == "differs"] == wrong


def test_an_untruth_is_an_exit_code(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(recount, "measure", lambda name: [[Line("x", 1, 2, "differs")]])
    monkeypatch.setattr(sys, "argv", ["recount", "--json", "steady"])
    assert recount.main() == 1
    told = json.loads(capsys.readouterr().out)["configurations"]["steady"]
    assert told == [[{"figure": "x", "said": 1, "counted": 2, "verdict": "differs"}]]
    monkeypatch.setattr(recount, "measure", lambda name: [[Line("x", 1, 1, "same")]])
    assert recount.main() == 0
