"""`rtagent plan`."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from rtagent.cli import plan as plan_command
from rtagent.cli.forward_time import ForwardTimes
from rtagent.cli.plan import make_plan
from rtagent.cli.update_time import UpdateTimes
from rtagent.config_sources import load_config
from rtagent.processes import limit
from tests.cli.conftest import Run

TICK_S = 1.0 / 59.7275


def _measured(
    forward_s: list[float], inference_s: list[float] | None = None, held_up: float = 1.0
) -> ForwardTimes:
    """Times of passes, which last `held_up` times as long as they keep a core busy."""
    return ForwardTimes(
        rate_hz=59.7275, network="nature", precision="float32", parameters=1000,
        forward_s=np.array(forward_s), busy_s=float(np.mean(forward_s)) / held_up,
        inference_s=np.array(inference_s or forward_s),
        takeover_s=np.array([2e-3]),
    )


def _plan(measured: ForwardTimes, *overrides: str, cores: int = 2) -> dict[str, Any]:
    return make_plan(load_config(None, overrides, {}), measured, _update(1e-3, 1e-4), cores)


def _update(gradient_s: float, apply_s: float, held_up: float = 1.0) -> UpdateTimes:
    busy_s = (gradient_s + apply_s) / held_up
    return UpdateTimes(
        "dqn", 32, "bfloat16", np.full(10, gradient_s), np.full(10, apply_s), busy_s
    )


def _learning(update: UpdateTimes | None, *overrides: str, cores: int = 8) -> dict[str, Any]:
    config = load_config(None, overrides, {})
    return make_plan(config, _measured([1e-4] * 10), update, cores)


def test_processes_for_each_mode() -> None:
    plan = _plan(_measured([4.5 * TICK_S] * 97 + [6.5 * TICK_S] * 3), cores=8)
    assert plan["inference_ticks"] == pytest.approx(4.56)
    assert plan["processes"] == {"adaptive": 6, "maximum-time": 7, "expected-time": 5}
    assert plan["forward_ms"] == plan["inference_ms"]
    assert plan["injected_latency"] is None


def test_one_hold_up_of_the_machine_asks_for_no_process_of_adaptive() -> None:
    """As `recommended_processes` of a running daemon does not count it."""
    plan = _plan(_measured([0.010] * 400 + [0.030]))
    assert plan["processes"] == {"adaptive": 1, "maximum-time": 2, "expected-time": 1}


@pytest.mark.parametrize(("ticks", "settings", "cores", "place", "advice"), [
    (5.0, (), 2, 0, "too few cores: .* 5.0 cores busy and there are 2"),
    (4.9, ("inference.processes=2",), 8, 1, "--set inference.processes=5"),
    (300.0, (), 512, 1, "at most 256"),
])
def test_what_is_too_little_for_acting_is_told(
    ticks: float, settings: tuple[str, ...], cores: int, place: int, advice: str
) -> None:
    plan = _plan(_measured([ticks * TICK_S] * 10), *settings, cores=cores)
    assert plan["cores_needed"] == pytest.approx(ticks)
    assert plan["enough_cores"] == (ticks <= cores)
    assert re.search(advice, plan["advice"][place])


def test_a_quota_of_time_counts_as_so_many_cores(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container with `--cpus` there were enough cores, however small its quota."""
    monkeypatch.setattr(limit, "quota_cores", lambda: 0.5)
    measured = _measured([0.8 * TICK_S] * 10)
    monkeypatch.setattr(plan_command, "measure", lambda *_: (measured, None))
    plan = run("plan", "--json").document()
    assert (plan["cores"], plan["enough_cores"]) == (0.5, False)
    assert "keeps 0.8 cores busy and there are 0.5;" in plan["advice"][0]


def test_time_for_which_a_quota_holds_a_process_up_keeps_no_core_busy() -> None:
    """It counted twice: the passes took longer, and there were fewer cores for them."""
    measured, update = _measured([0.8 * TICK_S] * 10, held_up=4.0), _update(0.12, 0.004, 4.0)
    plan = make_plan(load_config(None, [], {}), measured, update, 0.5)
    assert plan["cores_needed"] == pytest.approx(0.2)
    assert plan["enough_cores"]
    assert plan["learning"]["cores_needed"] == pytest.approx(0.031 / TICK_S)


def test_injected_latency_needs_no_core() -> None:
    measured = _measured([0.001] * 10, [0.082] * 10)
    plan = _plan(measured, "inference.injected_latency_ms=82", "inference.processes=5")
    assert plan["enough_cores"]
    assert plan["processes"]["adaptive"] == 5
    assert plan["injected_latency"] == {"mean_ms": 82.0, "distribution": "constant", "spread": 0.0}
    assert "injected latency needs no core: the padding is waited out" in plan["advice"]


def test_that_an_engine_was_not_measured_is_told() -> None:
    """The number of processes that torch needs was given as that of the run."""
    measured = _measured([2.9 * TICK_S] * 10)
    engine, torch = (
        _plan(measured, f"policy.engine={name}", cores=8)["advice"] for name in ("auto", "torch")
    )
    (said,) = set(engine) - set(torch)
    assert said.startswith("torch was measured: where policy.engine = 'auto' acts, fewer ")


def test_an_action_deadline_saves_processes() -> None:
    measured = _measured([4.9 * TICK_S] * 10)
    plan = _plan(measured, f"inference.action_deadline_ms={5e3 * TICK_S}", cores=8)
    assert plan["processes"]["maximum-time"] == 1


@pytest.mark.parametrize(("times", "setting", "cores", "needed", "advice"), [
    ((0.040, 0.002), "learning.processes=1", 8, 3, "--set learning.processes=3"),
    ((0.040, 0.002), "learning.processes=3", 8, 3, "enough cores: "),
    ((0.040, 0.002), "learning.processes=1", 2, 3, "keeps 2.5 cores busy, and acting leaves 2.0"),
    ((0.5, 0.020), "learning.processes=1", 8, None,
     "to apply one takes 20.0 ms, and a tick lasts 16.7 ms"),
])
def test_learners_to_learn_from_every_transition(
    times: tuple[float, float], setting: str, cores: int, needed: int | None, advice: str
) -> None:
    plan = _learning(_update(*times), setting, cores=cores)
    assert plan["learning"]["learners_needed"] == needed
    assert plan["learning"]["gradient_ms"]["mean"] == pytest.approx(1e3 * times[0])
    assert plan["learning"]["cores_needed"] == pytest.approx(sum(times) / TICK_S)
    assert advice in plan["advice"][-1]


@pytest.mark.parametrize(("processes", "advice"), [
    (1, "too little memory to measure learning here"), (0, "enough cores: acting keeps 0.01 of 8"),
])
def test_learning_that_was_not_measured_is_unknown(processes: int, advice: str) -> None:
    plan = _learning(None, f"learning.processes={processes}")
    assert plan["learning"] is None
    assert plan["advice"][-1].startswith(advice)


def test_the_table_names_injected_latency(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = _measured([0.001] * 10, [0.082] * 10)
    monkeypatch.setattr(plan_command, "measure", lambda *_: (measured, _update(0.028, 0.002)))
    shown = run("plan", "--set", "inference.injected_latency_ms=82")
    assert shown.code == 0
    assert "injected latency: 82 ms, constant" in shown.out
    assert "with injected latency" in shown.out
    assert "x = 4.898 ticks" in shown.out
    assert "dqn, bfloat16, 32 transitions per update" in shown.out
    assert "learners for an update on every tick: 2" in shown.out


@pytest.mark.process
@pytest.mark.usefixtures("shared_fork_server")
def test_measures_a_real_network(run: Run) -> None:
    settings = ("--set", "env.id=CartPole-v1", "--set", "inference.injected_latency_ms=40")
    plan = run("plan", *settings, "--seconds", "0.2", "--json").document()
    assert plan["rate_hz"] == 50.0
    assert plan["passes"] >= 5
    assert 0.0 < plan["forward_ms"]["p50"] <= plan["forward_ms"]["p99"] <= plan["forward_ms"]["max"]
    assert 0.0 < plan["takeover_ms"]["p50"] <= plan["takeover_ms"]["max"]
    assert plan["inference_ms"]["p50"] == pytest.approx(40.0)
    # A pass that another program interrupts may take longer than the injected latency.
    assert plan["inference_ms"]["mean"] >= 40.0 - 1e-6
    assert plan["inference_ticks"] == pytest.approx(plan["inference_ms"]["mean"] / 20.0)
    for part in ("gradient_ms", "apply_ms"):
        spread = plan["learning"][part]
        assert 0.0 < spread["p50"] <= spread["max"]
    assert plan["learning"]["learners_needed"] >= 1
