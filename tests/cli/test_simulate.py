"""`rtagent simulate`."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

from rtagent.cli.simulate import SCHEDULE
from rtagent.config_sources import all_keys
from rtagent.learning.shared_update import Gradient, SharedUpdate
from tests.cli.conftest import Refused, Run

KEYS = ["inaction_fraction", "strict_inaction_fraction", "interaction_mean", "gap_cv", "delay_mean",
        "delay_p99", "overwritten_fraction", "from_chunk_fraction", "converged_s"]


def test_json_has_the_contract_s_keys(run: Run) -> None:
    done = run("simulate", "--seconds", "4", "--json")
    assert list(done.document()) == KEYS
    assert done.err == ""


def test_all_options_reach_the_simulation(run: Run) -> None:
    """Without staggering five processes in step act together, and four of five ticks are lost."""
    done = run(
        *("simulate", "--algorithm", "unstaggered", "--inference-ticks", "5"),
        *("--distribution", "constant", "--spread", "0", "--processes", "5"),
        *("--seconds", "20", "--seed", "3", "--json"),
    )
    assert done.document()["inaction_fraction"] == pytest.approx(0.8, abs=0.02)


def test_the_seed_decides(run: Run) -> None:
    call = ("simulate", "--distribution", "lognormal", "--spread", "0.5", "--seconds", "5")
    first, same, other = (run(*call, "--seed", seed).out for seed in ("1", "1", "2"))
    assert first == same != other


def test_the_table_explains_every_figure(run: Run) -> None:
    shown = run("simulate", "--seconds", "5").out
    titles = "inaction", "strict inaction", "interaction time, CV", "delay, p99", "overwritten"
    for title in titles:
        assert f"\n{title} " in shown
    assert "6.00 ticks" in run("simulate", "--seconds", "20").out


def test_sequential_interaction_is_that_of_one_process(run: Run) -> None:
    shown = run("simulate", "--algorithm", "sequential", "--seconds", "5").out
    assert "sequential, 1 process, " in shown


def test_what_never_happens_is_not_a_number(run: Run) -> None:
    call = ("simulate", "--algorithm", "sequential", "--processes", "1", "--seconds", "5")
    assert run(*call, "--json").document()["converged_s"] is None
    assert "never" in run(*call).out


POLE = ("simulate", "--env", "CartPole-v1", "--update-ms", "20")
SHORT = ("--seconds", "4", "--json")


def test_a_whole_run_is_the_same_for_a_seed(run: Run) -> None:
    call = (*POLE, *SHORT, "--inference-ms", "30", "--set", "learning.learning_starts=64")
    first, same = (run(*call, "--policy", "train").document() for _ in range(2))
    other, configured = (
        run(*call, *seed).document() for seed in (("--seed", "1"), ("--set", "run.seed=1"))
    )
    for each in (first, same, other, configured):
        assert each.pop("took_s") > 0.0
    assert first == same != other == configured
    assert first["updates"] > 50
    assert first["inference_ms"] == pytest.approx(30.0)
    assert sum(first["delay_ticks"].values()) == round(
        (1.0 - first["inaction_fraction"]) * first["ticks"]
    )


def test_what_was_learned_plays_greedily_and_learns_nothing(run: Run, tmp_path: Path) -> None:
    settings = ("--set", "inference.processes=3", "--set", "learning.learning_starts=64")
    assert run(*POLE, *SHORT, *settings, "--save", str(tmp_path)).code == 0
    play = ("simulate", "--policy", str(tmp_path), *SHORT)
    found = run(*play, "--env", "CartPole-v1").document()
    assert (found["updates"], found["learners"], found["processes"]) == (0, 0, 3)
    assert found["update_ms"] is None
    assert found["policy"].startswith(str(tmp_path / "checkpoint-"))
    assert found["inaction_fraction"] == pytest.approx(0.0, abs=0.02)
    other = run(*play, "--env", "Acrobot-v1")
    assert (other.code, other.err.count("\n")) == (2, 1)


@pytest.mark.parametrize("name", ["r3.memory_budget_mb", "learning.evaluation_every_s"])
def test_what_is_not_applied_is_said(run: Run, name: str) -> None:
    done = run(*POLE, *SHORT, "--set", f"{name}=4000", "--set", "learning.processes=0")
    assert (done.code, done.err.count("not applied"), done.err.count(name)) == (0, 1, 1)


def test_a_whole_run_is_shown_to_a_person(run: Run) -> None:
    settings = ("--set", "inference.injected_latency_ms=30", "--set", "inference.processes=1")
    shown = run(*POLE, "--seconds", "3", *settings).out
    assert "CartPole-v1, adaptive, 1 process, 1 learner: 3 s in " in shown
    for title in ("inaction", "delays", "mean return"):
        assert f"\n{title} " in shown


def test_updates_that_are_left_out_are_told(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network that had diverged was shown as one that had learned nothing yet."""
    compute = SharedUpdate.compute

    def diverged(*given: Any, **more: Any) -> Gradient:
        return replace(compute(*given, **more), loss=math.nan)

    monkeypatch.setattr(SharedUpdate, "compute", diverged)
    call = (*POLE, "--seconds", "4", "--inference-ms", "30", "--set", "learning.learning_starts=64")
    found = run(*call, "--json").document()
    assert found["skipped"] > 50 > found["updates"] == 0
    assert f" 0, {found['skipped']} left out as not finite" in run(*call).out


def test_a_world_that_raises_is_named(refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise ValueError("the motor\nis broken")

    monkeypatch.setattr(CartPoleEnv, "step", fails)
    said = refused(*POLE, *SHORT)
    assert "env.id = CartPole-v1: step() raised ValueError: the motor is broken" in said


def broken(frame: Any) -> int:
    if frame.any():
        raise LookupError("my table\nhas no row")
    return 0


def test_a_default_behaviour_that_raises_is_named(refused: Refused) -> None:
    said = refused(*POLE, *SHORT, "--set", f"env.default_action={__name__}:broken")
    assert "env.default_action fails: LookupError: my table has no row; in broken (" in said


def test_settings_named_in_place_of_options_exist() -> None:
    named = re.findall(r"--set (\S+)=VALUE", " ".join(SCHEDULE.values()))
    assert len(named) == 4
    assert set(named) <= set(all_keys())
