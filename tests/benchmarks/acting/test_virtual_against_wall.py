"""A run in virtual time beside the same on the wall clock: what is printed of both."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

import rtagent
from benchmarks.acting import virtual_against_wall
from benchmarks.acting.virtual_against_wall import on_the_wall_clock
from rtagent.clock import VirtualClock
from tests.conftest import make_blueprint
from tests.rows import private_rings, write_row


def test_its_table_can_be_written_into_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It went to stderr."""
    simulated: dict[str, Any] = {
        "inaction_fraction": 0.1, "delay_ticks": {2: 10}, "mean_return": 9.0, "episodes": 3,
        "updates": 100,
    }
    wall = simulated | {"updates": 120, "update_s": 0.005}
    monkeypatch.setattr(virtual_against_wall, "measure_jitter", lambda seconds: "unmeasured")
    monkeypatch.setattr(virtual_against_wall, "on_the_wall_clock", lambda *_: wall)
    monkeypatch.setattr(virtual_against_wall, "playing", lambda config: config)
    run = SimpleNamespace(figures=lambda since_s: simulated)
    monkeypatch.setattr(virtual_against_wall.virtual, "run", lambda *_, **__: run)
    monkeypatch.setattr(sys, "argv", ["virtual_against_wall"])
    assert virtual_against_wall.main() == 1
    told = capsys.readouterr().out.splitlines()
    # How often it learns counts only where learning takes time from acting.
    assert told[2] == "playing   differ   inaction 0.0000  delays 0.0000  return 0.0000  ok"
    assert told[5] == "learning  differ   inaction 0.0000  delays 0.0000  updates 0.1667  MISSED"


@contextmanager
def stand_in(config: rtagent.Config) -> Iterator[Any]:
    """A run of eight ticks, one a second, in which nobody learns."""
    ledger = private_rings(make_blueprint(), 64)[1]
    for tick in range(8):
        write_row(ledger, tick, time_ns=tick * 1_000_000_000)
    learner = SimpleNamespace(updates=0, update_ns=0)
    environment = SimpleNamespace(first_due_ns=7_000_000_000)
    metrics = SimpleNamespace(learners=[learner], environment=environment)
    world = SimpleNamespace(ledger=ledger, metrics=metrics)
    yield SimpleNamespace(world=world, wait_ready=lambda timeout: None)


def test_a_run_that_only_plays_has_no_time_of_an_update(monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy warned of the mean of nothing."""
    monkeypatch.setattr(rtagent, "Runtime", stand_in)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = on_the_wall_clock(rtagent.Config(), 0.0)
    assert (found["updates"], found["update_s"]) == (0, None)
    assert found["ticks"] == 3


def test_it_is_as_long_on_the_wall_clock_as_in_virtual_time(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was longer by the time until every process had acted."""
    clock = VirtualClock(10.0)
    time = SimpleNamespace(monotonic=clock.now, sleep=clock.advance)
    monkeypatch.setattr(virtual_against_wall, "time", time)
    monkeypatch.setattr(rtagent, "Runtime", stand_in)
    on_the_wall_clock(rtagent.Config(), 8.1)
    assert clock.now() == pytest.approx(15.1)
