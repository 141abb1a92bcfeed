"""What the benchmark of R3 judges, on made-up runs."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import r3


def cell(share: float, **met: int) -> dict[str, Any]:
    """Twenty horizons of each contender; all are met but those named, returns are 100."""
    modes = {}
    for name in r3.CONTENDERS:
        run = {
            "met": met.get(name.replace("-", "_").replace(" ", "_"), 20), "horizons": 20,
            "mean_return": 100.0, "mean_batch": 64.0,
        }
        modes[name] = r3.pooled([run])
    return {"busy": False, "share": share, "deadline_s": share, "modes": modes}


def test_both_modes_run_with_the_default_margin_and_with_the_rule_of_the_paper() -> None:
    found = {name: r3.horizon_settings(name, 2.0, 100) for name in r3.CONTENDERS}
    for mode in ("episode", "step"):
        assert f"r3.mode={mode}" in found[mode]
        assert "r3.margin=0.15" in found[mode]
        assert f"r3.mode={mode}" in found[f"{mode} margin 0"]
        assert "r3.margin=0.0" in found[f"{mode} margin 0"]


def test_a_missed_deadline_counts_only_where_the_fastest_mode_meets_it() -> None:
    (fault,) = r3.faults(cell(1.0, episode=18))
    assert fault == "D = 1.0 times the undisturbed time: episode met 90%"
    assert r3.faults(cell(1.0, episode=18, max_p=18)) == []
    assert r3.faults(cell(1.0, max_a=0, episode=19)) == []


def test_margin_0_is_shown_and_not_judged() -> None:
    assert r3.faults(cell(1.0, episode_margin_0=0, step_margin_0=0)) == []
    returns = {name: [100.0] for name in r3.CONTENDERS} | {"step margin 0": [10.0]}
    assert r3.return_faults(returns) == []


@pytest.mark.parametrize("mode", ["episode", "step"])
def test_a_mode_that_learns_little_at_leisure_is_a_fault(mode: str) -> None:
    returns = {name: [100.0] for name in r3.CONTENDERS} | {mode: [80.0, 90.0]}
    assert r3.return_faults(returns) == [f"{mode} returns 85% of what max-a does"]
