"""`rtagent experiment`."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks import experiment as engine
from rtagent.processes.interrupts import EXIT_INTERRUPTED
from tests.cli.conftest import Run


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """No process is started for a trial."""

    def carried_out(calls: Any, at_once: int) -> Iterator[tuple[str, Any]]:
        for name, call in calls.items():
            yield name, call()

    monkeypatch.setattr(engine, "outcomes", carried_out)


def test_lists_the_experiments(run: Run) -> None:
    listed = {each["name"]: each["summary"] for each in run("experiment", "--json").document()}
    assert listed["interaction-time"].startswith("Interaction time against inference time")
    assert "__init__" not in listed
    shown = run("experiment", "--list")
    assert shown.code == 0
    assert "interaction-time" in shown.out


@pytest.mark.usefixtures("in_this_process")
def test_runs_one_and_then_only_draws_it(run: Run, tmp_path: Path) -> None:
    arguments = [
        "experiment", "interaction-time", "--quick", "--seeds", "0", "--out", str(tmp_path / "out"),
        "--only", "time=virtual", "--only", "ticks=3",
    ]
    shown = run(*arguments)
    assert shown.code == 0
    assert f"{tmp_path / 'out'}, quick: results.csv, intervals.csv" in shown.out.replace("\n", "")
    assert "± is half of the 95 % interval of a mean over the seeds" in shown.out
    (tmp_path / "out" / "interaction-time.png").unlink()
    again = run(*arguments, "--json").document()
    assert again["commands"][0].startswith("rtagent experiment interaction-time --quick --out ")
    found = {each["params"]["contender"]: each["figures"] for each in again["trials"]}
    assert found["sequential"]["interaction_ticks"] == pytest.approx(3, abs=0.1)
    assert found["sequential, learning"]["interaction_ticks"] == pytest.approx(6, abs=0.1)
    assert found["adaptive"]["interaction_ticks"] == pytest.approx(1, abs=0.01)
    assert (tmp_path / "out" / "interaction-time.png").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interruption_tells_which_command_goes_on(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    def interrupted(calls: Any, at_once: int) -> Iterator[tuple[str, Any]]:
        assert callable(signal.getsignal(number)), "it would end the program"
        signal.raise_signal(number)
        return iter(())

    monkeypatch.setattr(engine, "outcomes", interrupted)
    out = tmp_path / "out"
    ended = run("experiment", "discounting", "--quick", "--seeds", "0", "--anew", "--out", str(out))
    assert ended.code == EXIT_INTERRUPTED
    # With --anew the finished trials would be thrown away.
    assert f": rtagent experiment discounting --quick --out {out} --seeds 0\n" in ended.err
