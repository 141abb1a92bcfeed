"""`rtagent plan`."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from rtagent.cli import plan as plan_command
from rtagent.cli.forward_time import ForwardTimes
from rtagent.cli.plan import make_plan, processes_for
from rtagent.cli.update_time import UpdateTimes
from rtagent.config_sources import load_config
from tests.cli.conftest import Run

TICK_S = 1.0 / 59.7275


def _measured(forward_s: list[float], inference_s: list[float] | None = None) -> ForwardTimes:
    return ForwardTimes(
        rate_hz=59.7275, network="nature", precision="float32", parameters=1000,
        forward_s=np.array(forward_s), inference_s=np.array(inference_s or forward_s),
        takeover_s=np.array([2e-3]),
    )


def _plan(measured: ForwardTimes, *overrides: str, cores: int = 2) -> dict[str, Any]:
    return make_plan(load_config(None, overrides, {}), measured, _update(1e-3, 1e-4), cores)


def _update(gradient_s: float, apply_s: float) -> UpdateTimes:
    return UpdateTimes("dqn", 32, np.full(10, gradient_s), np.full(10, apply_s))


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


def test_too_few_cores_are_told() -> None:
    plan = _plan(_measured([5 * TICK_S] * 10), cores=2)
    assert not plan["enough_cores"]
    assert plan["cores_needed"] == pytest.approx(5.0)
    assert "too few cores" in plan["advice"][0]
    assert "5.0 cores busy and there are 2" in plan["advice"][0]


def test_injected_latency_needs_no_core() -> None:
    measured = _measured([0.001] * 10, [0.082] * 10)
    plan = _plan(measured, "inference.injected_latency_ms=82", "inference.processes=5")
    assert plan["enough_cores"]
    assert plan["processes"]["adaptive"] == 5
    assert plan["injected_latency"] == {"mean_ms": 82.0, "distribution": "constant", "spread": 0.0}
    assert "injected latency needs no core: the padding is waited out" in plan["advice"]


def test_an_action_deadline_saves_processes() -> None:
    measured = _measured([4.9 * TICK_S] * 10)
    plan = _plan(measured, f"inference.action_deadline_ms={5e3 * TICK_S}", cores=8)
    assert plan["processes"]["maximum-time"] == 1


def test_too_few_processes_are_told() -> None:
    plan = _plan(_measured([4.9 * TICK_S] * 10), "inference.processes=2", cores=8)
    assert "--set inference.processes=5" in plan["advice"][1]


def test_more_processes_than_there_can_be() -> None:
    plan = _plan(_measured([300 * TICK_S] * 10), cores=512)
    assert "at most 256" in plan["advice"][1]


def test_learners_to_learn_from_every_transition() -> None:
    plan = _learning(_update(0.040, 0.002))
    assert plan["learning"]["learners_needed"] == 3
    assert plan["learning"]["gradient_ms"]["mean"] == pytest.approx(40.0)
    assert plan["learning"]["cores_needed"] == pytest.approx(0.042 / TICK_S)
    assert "--set learning.processes=3" in plan["advice"][-1]
    enough = _learning(_update(0.040, 0.002), "learning.processes=3")
    assert "learning.processes" not in " ".join(enough["advice"])


def test_too_few_cores_for_the_learners_are_told() -> None:
    plan = _learning(_update(0.040, 0.002), cores=2)
    assert "keeps 2.5 cores busy, and acting leaves 2.0" in plan["advice"][-1]


def test_no_number_of_learners_may_be_enough() -> None:
    plan = _learning(_update(0.5, 0.020))
    assert plan["learning"]["learners_needed"] is None
    assert "to apply one takes 20.0 ms, and a tick lasts 16.7 ms" in plan["advice"][-1]


def test_learning_that_was_not_measured_is_unknown() -> None:
    plan = _learning(None)
    assert plan["learning"] is None
    assert plan["advice"][-1] == "too little memory to measure learning here"


def test_a_single_hold_up_is_no_reason_for_another_process() -> None:
    """`adaptive` leaves the slowest 1 % out."""
    assert processes_for(np.array([0.8] * 399 + [3.0]), 1.0)["adaptive"] == 1
    assert processes_for(np.full(10, 4.2), 1.0)["adaptive"] == 5


def test_where_nothing_learns_nothing_is_said_of_learning() -> None:
    plan = _learning(None, "learning.processes=0")
    assert plan["learning"] is None
    assert not any("learn" in line for line in plan["advice"])


def test_the_table_names_injected_latency(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = _measured([0.001] * 10, [0.082] * 10)
    monkeypatch.setattr(plan_command, "measure", lambda *_: (measured, _update(0.028, 0.002)))
    shown = run("plan", "--set", "inference.injected_latency_ms=82")
    assert shown.code == 0
    assert "injected latency: 82 ms, constant" in shown.out
    assert "with injected latency" in shown.out
    assert "x = 4.898 ticks" in shown.out
    assert "learners for an update on every tick: 2" in shown.out


@pytest.mark.process
@pytest.mark.usefixtures("shared_fork_server")
def test_measures_a_real_network(run: Run) -> None:
    done = run(
        *("plan", "--set", "env.id=CartPole-v1", "--set", "inference.injected_latency_ms=40"),
        *("--seconds", "0.2", "--json"),
    )
    assert done.code == 0, done.err
    plan = json.loads(done.out)
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
