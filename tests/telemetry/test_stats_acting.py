"""The figures of acting: the clock, actions, inference, what inaction costs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rtagent.clock import NANO
from rtagent.memory.engine_models import ENGINES, PRECISIONS
from rtagent.memory.policy_states import Beginning
from rtagent.memory.process_metrics import InferenceRecord, Registration
from rtagent.telemetry import stats
from tests.rows import write_row
from tests.telemetry.counted_run import AGENT, DEFAULT, PERIOD_NS, RATE_HZ, REUSED, START_NS, Run


@pytest.fixture
def run() -> Run:
    return Run().begin()


def test_clock(run: Run) -> None:
    for tick in range(1001):
        run.tick(tick, late_ns=1000 * (tick % 10))
    clock = run.figures().clock
    assert clock["ticks"] == 1001
    assert clock["rate_hz"] == pytest.approx(RATE_HZ, rel=1e-6)
    assert clock["target_rate_hz"] == RATE_HZ
    assert clock["uptime_s"] == pytest.approx(20.0)
    # Nothing has accumulated: only the last wake-up is late.
    assert clock["drift_ms"] == 0.0
    lateness = 1000 * (np.arange(1001) % 10) / 1e3
    assert clock["lateness_us"] == {
        "p50": np.percentile(lateness, 50), "p99": np.percentile(lateness, 99),
        "p999": np.percentile(lateness, 99.9), "max": 9.0,
    }


def test_steps_of_the_last_minute(run: Run) -> None:
    run.metrics.environment.reset_ns = 12_000_000
    # 3001 ticks are in the window; the slow steps before it are not.
    for tick in range(4000):
        length_us = 200_000 if tick < 900 else tick % 100
        run.metrics.environment.add_step(tick, 1000 * length_us)
        run.tick(tick)
    clock = run.figures().clock
    lengths = np.arange(999, 4000) % 100
    assert clock["step_us"] == {
        "p50": np.percentile(lengths, 50), "p99": np.percentile(lengths, 99), "max": 99.0
    }
    assert clock["reset_ms"] == 12.0


def test_slip_is_drift_and_no_loss_of_uptime(run: Run) -> None:
    run.tick(0)
    record = run.metrics.environment
    record.slips, record.slipped_ns = 2, 300_000_000
    run.tick(1, late_ns=2000, slipped_ns=300_000_000)
    # The anchor is a word of its own, which follows a moment later.
    for anchor_ns in (START_NS, START_NS + 300_000_000):
        record.anchor_ns = anchor_ns
        clock = run.figures().clock
        assert clock["slips"] == 2
        assert clock["uptime_s"] == pytest.approx(0.320002)
        assert clock["drift_ms"] == pytest.approx(300.002)


def test_uptime_survives_a_restart_of_the_environment(run: Run) -> None:
    run.world.first_tick = first_tick = 50
    record = run.metrics.environment
    # The run's tick 100 runs 5 s later than the first clock had it.
    record.anchor_ns, record.anchor_tick = START_NS + 100 * PERIOD_NS + 5 * NANO, first_tick + 100
    record.slipped_ns, record.agent = 5 * NANO, 101
    run.clock.advance(7.5)
    assert run.figures().clock["uptime_s"] == pytest.approx(7.5)


def test_actions_are_those_of_the_rows(run: Run) -> None:
    script = [(DEFAULT, -1), (AGENT, 0), (REUSED, 0), (AGENT, 1), (DEFAULT, -1),
              (AGENT, 1), (REUSED, 4), (AGENT, 6), (AGENT, 7), (REUSED, 7)]
    for tick, (source, observed) in enumerate(script):
        run.tick(tick, source, observed)
    actions = run.figures().actions
    executed = run.ledger.read(0, len(script))["source"].tolist()
    for name, source in (("agent", AGENT), ("reused", REUSED), ("default", DEFAULT)):
        assert actions[name] == executed.count(source) > 0
    assert actions["inaction_fraction"] == actions["inaction_fraction_60s"] == 0.2
    assert actions["strict_inaction_fraction"] == 0.5
    delays = [tick - seen for tick, (source, seen) in enumerate(script) if source != DEFAULT]
    assert actions["delay_ticks"] == {
        "mean": np.mean(delays), "p50": np.percentile(delays, 50),
        "p99": np.percentile(delays, 99), "max": max(delays),
    }


@pytest.mark.parametrize(("state_size", "mean"), [(4, 3.0), (0, None)])
def test_the_lag_of_states_counts_those_that_came_from_one(
    state_size: int, mean: float | None
) -> None:
    run = Run({"state_size": state_size})
    for tick, lag in enumerate((-1, 0, 2, 4)):
        beginning = None if lag < 0 else Beginning(lag, np.zeros(state_size, np.float32))
        write_row(run.ledger, tick, time_ns=START_NS, beginning=beginning)
    assert run.figures().actions["state_lag"] == mean


def test_a_tick_that_is_executed_meanwhile_counts_everywhere_or_nowhere(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.tick(0)
    run.metrics.environment.reward_high = 1.0
    spread = stats._spread

    def meanwhile(*given: Any) -> list[float | None]:
        run.metrics.environment.default += 1
        return spread(*given)

    monkeypatch.setattr(stats, "_spread", meanwhile)
    found = run.figures()
    counted = [found.actions[source] for source in ("agent", "reused", "default")]
    assert found.clock["ticks"] == sum(counted)
    assert found.regret["inaction"]["value"] == found.actions["default"]


def test_window_is_sixty_seconds(run: Run) -> None:
    for tick in range(4000):
        run.tick(tick, DEFAULT if tick < 2500 else AGENT, -1 if tick < 2500 else tick - 2)
    actions = run.figures().actions
    # 3000 ticks, and the one at the window's edge.
    assert actions["inaction_fraction_60s"] == pytest.approx(1500 / 3000, abs=1e-3)
    assert actions["inaction_fraction"] == 2500 / 4000
    for ago_s, window_s, inaction in ((75.0, 60.0, 0.5), (40.0, 40.0, 0.25)):
        since = run.clock.now() - ago_s
        run.control.write(replace(run.control.desired, inference_since=since))
        figures = run.figures()
        assert figures.clock["window_s"] == pytest.approx(window_s)
        assert figures.actions["inaction_fraction_window"] == pytest.approx(inaction, abs=1e-3)
        assert figures.actions["inaction_fraction_60s"] == pytest.approx(0.5, abs=1e-3)
    run.clock.advance(61.0)
    figures = run.figures()
    assert figures.actions["inaction_fraction_60s"] is None
    assert figures.actions["delay_ticks"]["mean"] is None
    assert figures.clock["rate_hz"] is None
    assert figures.actions["agent"] == 1500


def test_overwritten(run: Run) -> None:
    for tick in range(10):
        run.deposit(tick, tick * 0.02)
        run.tick(tick, AGENT if tick < 7 else DEFAULT, tick - 3)
    # These two may still be executed.
    run.deposit(10, 0.1)
    run.deposit(12, 0.2)
    assert run.figures().actions["overwritten"] == 3


def test_what_is_registered_meanwhile_is_not_overwritten(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.tick(0)
    read = InferenceRecord.registrations_since
    ahead = iter(range(1, 10))

    def and_one_more(record: InferenceRecord, since_ns: int) -> Any:
        found = read(record, since_ns)
        run.deposit(next(ahead), 0.02)
        return found

    monkeypatch.setattr(InferenceRecord, "registrations_since", and_one_more)
    assert run.figures().actions["overwritten"] == 0


def test_the_count_of_overwritten_actions_does_not_fall(run: Run) -> None:
    for tick in range(3):
        run.deposit(tick, tick * 0.02)
        run.tick(tick)
    assert run.figures().actions["overwritten"] == 3
    # It has been executed, and its process has not counted it yet.
    run.tick(3, AGENT, 0)
    assert run.figures().actions["overwritten"] == 3


def test_a_chunk_is_overwritten_if_none_of_its_actions_is_used(run: Run) -> None:
    record = run.metrics.inference[1]
    for tick in range(10):
        run.tick(tick, DEFAULT, -1)
    for number, tick in enumerate((0, 3, 8, 9, 10)):
        record.inferences += 1
        at_ns = START_NS + number
        record.registrations.append(Registration(at_ns, NANO // 100, tick, 4))
    # The one from tick 3 on has acted, and that from tick 8 on; those from 9 and 10 on may yet.
    run.metrics.environment.decisions = 2
    write_row(
        run.ledger, 10, observed=7, time_ns=START_NS + 10 * PERIOD_NS, registered_ns=START_NS + 2,
        worker=1, position=2,
    )
    assert run.figures().actions["overwritten"] == 1
    # Of eleven ticks, the last.
    assert run.figures().actions["from_chunk"] == pytest.approx(1 / 11)


@pytest.mark.parametrize("algorithm", ["adaptive", "maximum-time", "unstaggered"])
def test_interaction_time_is_that_of_the_ticks_with_a_new_action(run: Run, algorithm: str) -> None:
    run.order(algorithm)
    for tick, source in enumerate((AGENT, REUSED, AGENT, DEFAULT, DEFAULT, AGENT)):
        run.tick(tick, source, tick - 5 if source else -1, late_ns=1_000_000 if tick == 2 else 0)
    interaction, gaps_ms = run.figures().actions["interaction_ms"], [41.0, 59.0]
    assert interaction["mean"] == pytest.approx(np.mean(gaps_ms))
    assert interaction["cv"] == pytest.approx(np.std(gaps_ms) / np.mean(gaps_ms))


def test_processes_in_step_do_not_act_five_times_as_often_as_one(run: Run) -> None:
    """Without staggering, N = 5, x = 4.9: five actions at once, of which one is executed."""
    run.order("unstaggered")
    registered_at = [4.9 * number for number in range(1, 60)]
    for tick in range(300):
        in_time = any(tick - 1 < at <= tick for at in registered_at)
        run.tick(tick, AGENT if in_time else DEFAULT, tick - 5 if in_time else -1)
    for at in registered_at:
        for worker in range(5):
            run.deposit(round(at) + 1, at * PERIOD_NS / NANO, worker)
    actions = run.figures().actions
    assert actions["interaction_ms"]["mean"] / 20.0 == pytest.approx(4.9, abs=0.02)
    assert actions["interaction_ms"]["cv"] < 0.1


def test_inference(run: Run) -> None:
    for index, times_ms in ((0, (80, 82)), (1, (84, 86))):
        record = run.metrics.inference[index]
        record.inferences, record.takeover_ns = 2, 6000
        record.weights_version = 41 if index else 0
        record.registrations.append(Registration(START_NS - 61 * NANO, 5 * NANO, 0))
        for time_ms in times_ms:
            record.registrations.append(Registration(START_NS, time_ms * 1_000_000, 0))
    run.roles(
        {"role": "environment", "index": 0, "pid": 1, "state": "running", "restarts": 0},
        {"role": "inference", "index": 0, "pid": 2, "state": "running", "restarts": 3},
        {"role": "inference", "index": 1, "pid": None, "state": "backoff", "restarts": 0},
    )
    inference = run.figures().inference
    assert (inference["processes"], inference["ready"]) == (2, 1)
    assert inference["algorithm"] == "adaptive"
    assert inference["estimate_ms"] == 83.0
    first, second = inference["workers"]
    assert (first["id"], first["pid"], first["state"], first["restarts"]) == (0, 2, "running", 3)
    assert (second["id"], second["pid"], second["state"]) == (1, None, "backoff")
    assert (second["inferences"], second["weights_version"]) == (2, 41)
    assert (first["weights_version"], first["takeover_us"]) == (None, 3.0)
    assert (first["latency_ms"]["p50"], first["latency_ms"]["max"]) == (81.0, 82.0)
    # 83 ms of 20 ms ticks are 5, and so are 86 ms.
    assert inference["recommended_processes"] == 5


def test_an_engine_acts_once_every_process_has_its_model(run: Run) -> None:
    def acts() -> tuple[Any, ...]:
        inference = run.figures().inference
        names = ("engine", "engine_precision", "engine_agreement")
        return tuple(inference[name] for name in names)

    run.running(inference=2)
    for index, agreement in enumerate((0.997, 0.992)):
        assert acts() == ("torch", None, None)
        record = run.metrics.inference[index]
        record.engine, record.precision = ENGINES.index("openvino"), PRECISIONS.index("bfloat16")
        record.agreement = agreement
    assert acts() == ("openvino", "bfloat16", 0.992)


@pytest.mark.parametrize("policy", [{"remote": "ws://127.0.0.1:9"}, {"pretrained": "a.onnx"}])
def test_no_engine_of_ours_runs_a_policy_server_or_a_finished_policy(
    policy: dict[str, str]
) -> None:
    run = Run(policy=policy, learning={"processes": 0})
    run.running(inference=1)
    assert run.figures().inference["engine"] is None


@pytest.mark.parametrize(
    ("algorithm", "deadline_ms", "processes"),
    [("maximum-time", None, 5), ("expected-time", 41.5, 2), ("unstaggered", None, None)],
)
def test_recommended_processes(
    run: Run, algorithm: str, deadline_ms: float | None, processes: int | None
) -> None:
    run.order(algorithm, action_deadline_ms=deadline_ms)
    # A hold-up by the machine is no reason to grow.
    for latency_s in (100.0, *[0.083] * 199):
        run.metrics.inference[0].registrations.append(
            Registration(START_NS, round(latency_s * NANO), 0)
        )
    run.running(inference=1)
    assert run.figures().inference["recommended_processes"] == processes


def test_disagreement_is_with_the_first_tick_that_could_have_used_the_frame(run: Run) -> None:
    for tick, (source, observed, action) in enumerate((
        (DEFAULT, -1, 0), (AGENT, 0, 1), (AGENT, 0, 1), (AGENT, 1, 1), (AGENT, 2, 2),
        (REUSED, 4, 2), (AGENT, 4, 0), (AGENT, 4, 2),
    )):
        run.tick(tick, source, observed, action=action)
    # From frames 0, 0, 1, 2; the ticks after them executed 1, 1, 1, 1. That after frame 4 re-used.
    assert run.figures().actions["disagreement"] == pytest.approx(1 / 4)


@pytest.mark.parametrize("length", [1, 4])
def test_neither_the_least_delay_nor_a_chunk_is_a_disagreement(run: Run, length: int) -> None:
    """Every action differs from the one before; those of a chunk are chosen at once."""
    for tick in range(20):
        at = tick % length
        run.tick(tick, AGENT, tick - at - 1, action=tick % 2, position=at)
    assert run.figures().actions["disagreement"] == 0.0


def test_of_continuous_actions_disagreement_is_unknown() -> None:
    run = Run({"action_shape": (2,), "action_dtype": "float32"}).begin()
    for tick in range(20):
        run.tick(tick, AGENT, tick - 2, action=np.zeros(2, np.float32))
    assert run.figures().actions["disagreement"] is None


def test_default_ticks_are_inaction_and_no_disagreement(run: Run) -> None:
    for tick in range(20):
        acts = tick % 2 == 0
        run.tick(tick, AGENT if acts else DEFAULT, tick - 2 if acts else -1, action=int(acts))
    assert run.figures().actions["disagreement"] is None


def test_regret_is_in_units_of_reward(run: Run) -> None:
    run.tick(0, DEFAULT)
    unknown = {"value": None, "kind": "unknown", "unit": "reward"}
    assert run.figures().regret == dict.fromkeys(("inaction", "delay", "learning"), unknown)
    run.tick(1, DEFAULT)
    run.tick(2, AGENT, 0)
    run.metrics.environment.reward_low, run.metrics.environment.reward_high = -0.5, 2.0
    seen = {"value": 5.0, "kind": "estimate", "unit": "reward"}
    assert run.figures().regret["inaction"] == seen
    for least, value in ((-1.0, 6.0), (-0.5, 5.0)):
        run.world.blueprint = replace(run.blueprint, reward_range=(least, 2.0))
        declared = {"value": value, "kind": "bound", "unit": "reward"}
        assert run.figures().regret["inaction"] == declared
    # A declared range that rewards exceed does not count.
    run.world.blueprint = replace(run.blueprint, reward_range=(0.0, 1.0))
    assert run.figures().regret["inaction"] == seen


def test_a_late_action_may_still_be_executed_at_the_next_tick(run: Run) -> None:
    for tick in range(10):
        run.tick(tick)
    # Behind tick 9, for the ticks 8 and 9, which are over.
    run.deposit(8, 9.5 * 0.02)
    run.deposit(9, 9.6 * 0.02)
    assert run.figures().actions["overwritten"] == 0
    run.tick(10, AGENT, 4)
    assert run.figures().actions["overwritten"] == 1
