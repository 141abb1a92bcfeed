"""`rtagent bench --check`, with made-up figures."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from rtagent.cli import bench, bench_ratchet
from rtagent.cli.bench import find_scripts
from rtagent.cli.bench_ratchet import Record
from tests.cli.conftest import Refused, Run

RATIO = Record("ratio", "fast", ("--quick",), ("cases", 0, "ratio"), "more", 0.1, 3.0, 0.2, 0.0)
LATE = Record("lateness", "fast", ("--quick",), ("late",), "less", 0.5, 1.0, 0.2, 0.0)
NEW = Record("new", "other", (), ("value",), "more", 0.0)


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the benchmarks print now; `runs` has the ones that were run."""
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "fast.py").write_text('if __name__ == "__main__": pass')
    bench_ratchet.write(tmp_path / bench.RATCHET, [RATIO, LATE, NEW])
    values: dict[str, Any] = {
        "fast": {"cases": [{"ratio": 2.9}], "late": 1.4}, "other": {"value": 7.0}, "runs": [],
    }

    def measure(name: str, arguments: tuple[str, ...]) -> Any:
        values["runs"].append((name, arguments))
        found = values[name]
        return found.pop(0) if isinstance(found, list) else found

    monkeypatch.setattr(bench, "CHECKOUT", tmp_path)
    monkeypatch.setattr(bench, "_measure", measure)
    return values


@pytest.mark.parametrize(("record", "now", "holds"), [
    (RATIO, 2.81, True), (RATIO, 2.79, False), (RATIO, 9.0, True),
    (LATE, 1.49, True), (LATE, 1.51, False), (LATE, 0.0, True),
    (NEW, 0.0, True),
])
def test_a_loss_above_the_noise_is_one(record: Record, now: float, holds: bool) -> None:
    """Of two noises the larger counts, and a gain is never a loss."""
    assert record.holds(now) == holds


def test_what_holds_is_shown_and_each_benchmark_runs_once(
    run: Run, measured: dict[str, Any]
) -> None:
    done = run("bench", "--check", "--json").document()
    assert [(each["now"], each["holds"]) for each in done] == [
        (2.9, True), (1.4, True), (7.0, True)]
    assert measured["runs"] == [("fast", ("--quick",)), ("other", ())]


def test_a_loss_ends_with_1(run: Run, measured: dict[str, Any]) -> None:
    measured["fast"]["cases"][0]["ratio"] = 2.0
    done = run("bench", "--check", "fast")
    assert done.code == 1
    assert done.out.count("LOST") == 1
    assert "new" not in done.out, "only the one that was named"


def test_a_figure_is_lost_if_the_median_of_three_runs_is(
    run: Run, measured: dict[str, Any]
) -> None:
    """A single run is beyond the range of three others by chance, one time in eight."""
    def said(*fast: tuple[float | None, float]) -> tuple[int, list[Any], list[str]]:
        measured["fast"] = [{"cases": [{"ratio": ratio}], "late": late} for ratio, late in fast]
        measured["runs"].clear()
        done = run("bench", "--check", "--json")
        now = [(each["now"], each["holds"]) for each in json.loads(done.out)]
        return done.code, now, [name for name, _ in measured["runs"]]

    kept, new = (1.4, True), (7.0, True)
    runs = ["fast", "other", "fast", "fast"]
    assert said((2.0, 1.4), (2.9, 9.0), (3.1, 9.0)) == (0, [(2.9, True), kept, new], runs)
    assert said((2.0, 1.4), (2.1, 9.0), (3.1, 9.0)) == (1, [(2.1, False), kept, new], runs)
    assert said((3.1, 1.4), (3.1, 1.4))[2] == runs[:2]
    code, now, _ = said((None, 1.4), (3.1, 1.4), (3.1, 1.4))
    assert (code, now[0]) == (1, (None, False)), "an unknown figure is no good one"


@pytest.mark.usefixtures("measured")
def test_writes_the_median_of_three_runs_and_how_far_they_are_apart(
    run: Run, measured: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Every benchmark that has run adds to the load.
    monkeypatch.setattr(os, "getloadavg", lambda: (0.5 + len(measured["runs"]), 0.0, 0.0))
    measured["fast"] = [{"cases": [{"ratio": r}], "late": 1.0} for r in (3.4, 3.1, 3.0)]
    assert run("bench", "--check", "--write", "fast").code == 0
    ratio, late, new = bench_ratchet.read(tmp_path / bench.RATCHET)
    assert (ratio.value, ratio.noise) == (3.1, pytest.approx(0.4))
    assert (late.value, late.noise) == (1.0, 0.5)
    assert ratio.load == 0.5, "before the benchmarks ran"
    assert new == NEW, "the others stay"


@pytest.mark.parametrize("now", [
    {"late": 1.4}, {"cases": [], "late": 1.4}, {"cases": [{"ratio": []}], "late": 1.4}, 3.0,
])
def test_a_figure_that_its_benchmark_does_not_print_is_named(
    refused: Refused, measured: dict[str, Any], now: Any
) -> None:
    measured["fast"] = now
    told = refused("bench", "--check", "fast")
    assert "bench fast does not print the figure ratio at cases.0.ratio" in told


def test_an_unknown_figure_is_a_loss_and_is_not_written(
    run: Run, measured: dict[str, Any], tmp_path: Path
) -> None:
    measured["fast"]["cases"][0]["ratio"] = None
    done = run("bench", "--check", "fast")
    assert done.code == 1
    assert "unknown  LOST" in done.out
    done = run("bench", "--check", "--write", "fast")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "a figure is unknown, so nothing is written" in done.err
    assert bench_ratchet.read(tmp_path / bench.RATCHET) == [RATIO, LATE, NEW]


@pytest.mark.usefixtures("measured")
def test_refusals(refused: Refused) -> None:
    assert "fast, other" in refused("bench", "--check", "nothing")
    assert "--check" in refused("bench", "--write")
    assert "go before the name" in refused("bench", "--check", "fast", "--write")


def test_the_committed_ones_are_of_benchmarks_that_there_are() -> None:
    records = bench_ratchet.read(Path(__file__).parents[2] / bench.RATCHET)
    assert {each.benchmark for each in records} <= set(find_scripts())
    assert len({each.figure for each in records}) == len(records)
