"""`rtagent simulate`."""

from __future__ import annotations

import json

import pytest

from rtagent.staggering.register import ALGORITHMS
from tests.cli.conftest import Run

KEYS = ["inaction_fraction", "strict_inaction_fraction", "interaction_mean", "gap_cv", "delay_mean",
        "delay_p99", "overwritten_fraction", "converged_s"]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_json_has_the_contract_s_keys(run: Run, algorithm: str) -> None:
    done = run(
        *("simulate", "--algorithm", algorithm, "--inference-ticks", "5", "--processes", "5"),
        *("--seconds", "4", "--seed", "1", "--json"),
    )
    assert done.code == 0
    assert list(json.loads(done.out)) == KEYS
    assert done.err == ""


def test_all_options_reach_the_simulation(run: Run) -> None:
    """Without staggering five processes in step act together, and four of five ticks are lost."""
    done = run(
        *("simulate", "--algorithm", "unstaggered", "--inference-ticks", "5"),
        *("--distribution", "constant", "--spread", "0", "--processes", "5"),
        *("--seconds", "20", "--seed", "3", "--json"),
    )
    assert json.loads(done.out)["inaction_fraction"] == pytest.approx(0.8, abs=0.02)


def test_the_seed_decides(run: Run) -> None:
    call = ("simulate", "--distribution", "lognormal", "--spread", "0.5", "--seconds", "5")
    first, same, other = (run(*call, "--seed", seed).out for seed in ("1", "1", "2"))
    assert first == same != other


def test_the_table_explains_every_figure(run: Run) -> None:
    shown = run("simulate", "--seconds", "5").out
    for title in ("inaction", "strict inaction", "gap CV", "delay, p99", "overwritten"):
        assert f"\n{title} " in shown
    assert "6.00 ticks" in run("simulate", "--seconds", "20").out


def test_what_never_happens_is_not_a_number(run: Run) -> None:
    call = ("simulate", "--algorithm", "sequential", "--processes", "1", "--seconds", "5")
    assert json.loads(run(*call, "--json").out)["converged_s"] is None
    assert "never" in run(*call).out
