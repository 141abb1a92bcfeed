"""The daemon after many deaths and changes: as large as before, and still telling the truth."""

from __future__ import annotations

import json
import random
import subprocess
import sys

import pytest

from benchmarks.daemon import RunningDaemon
from benchmarks.recount.raw_ledger import Ledger, Recount
from benchmarks.reliability.soak import Soak
from tests.conftest import eventually

from .watching import FAST_CARTPOLE, await_ticks

CAPACITY = 20_000
SHORT_GROWTH = 0.5
"""In two minutes replay and learner still fill up; the bar of half an hour is 2 %."""


@pytest.mark.process
def test_every_figure_agrees_with_the_ledger_after_a_death() -> None:
    with RunningDaemon(*FAST_CARTPOLE, "learning.processes=0") as daemon:
        recount = Recount(Ledger(daemon.process.pid, CAPACITY), 100.0)
        soak = Soak(daemon, recount, random.Random(0))
        await_ticks(daemon, 100)
        soak.kill(next(role for role in soak.roles() if role["role"] == "environment"))
        eventually(
            lambda: all(role["state"] == "running" for role in soak.roles()), "it is replaced"
        )
        await_ticks(daemon, 100)
        assert soak.untrue_figures() == []
        # A busy machine may hold the clock up, too, and that is counted on both sides.
        assert recount.deaths == 1 <= recount.slips
        stats = daemon.stats()
        stats["actions"]["agent"] += 5
        stats["episodes"]["mean_return_100"] *= 1.01
        stats["clock"]["lateness_us"]["max"] += 5
        wrong = {each.partition(":")[0] for each in recount.untrue(stats, 0.0, 0.0)}
        assert {"actions.agent", "episodes.mean_return_100", "clock.lateness_us.max"} <= wrong


@pytest.mark.slow
@pytest.mark.process
def test_a_short_soak() -> None:
    script = "benchmarks.reliability.soak"
    command = [sys.executable, "-m", script, "--minutes", "2", "--seed", "7", "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=400, check=False)
    result = json.loads(done.stdout)
    told = {name: value for name, value in result.items() if name != "samples"}
    assert result["not_recovered"] is None, told
    assert result["untrue_figures"] == [], told
    assert result["rows_lost_or_torn"] == 0, told
    assert all(more <= 0 for more in result["more_descriptors"].values()), told
    assert result["memory_growth"] < SHORT_GROWTH, told
    assert result["rounds"] >= 10, told
