"""Every figure of the contract, from rows that were made by hand."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import replace
from functools import reduce
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rtagent.clock import VirtualClock
from rtagent.config_sources import parse_config
from rtagent.memory.actions import NANO
from rtagent.memory.blueprint import TensorSpec
from rtagent.memory.horizon import Horizon, Reservations
from rtagent.memory.process_metrics import FinishedEpisode, Registration
from rtagent.memory.weights import WeightsInfo
from rtagent.memory.world import World, WorldMemory
from rtagent.staggering.arbiter import Deposited, Source
from rtagent.telemetry.stats import StatsReader
from tests.conftest import make_blueprint
from tests.desired import make_desired, with_changes

RATE_HZ = 50.0
PERIOD_NS = 20_000_000
CAPACITY = 8192
PARAMETERS = 4
START_NS = 1000 * NANO
DEFAULT, AGENT, REUSED = Source.DEFAULT, Source.AGENT, Source.REUSED

CONTRACT = {
    "clock": "uptime_s ticks rate_hz target_rate_hz drift_ms slips lateness_us.p50 lateness_us.p99 "
             "lateness_us.p999 lateness_us.max",
    "actions": "agent reused default inaction_fraction strict_inaction_fraction "
               "inaction_fraction_60s overwritten interaction_ms.mean interaction_ms.cv "
               "disagreement delay_ticks.mean delay_ticks.p50 delay_ticks.p99 delay_ticks.max "
               "from_chunk",
    "inference": "processes ready algorithm estimate_ms recommended_processes workers",
    "learning": "processes updates updates_per_s samples_consumed batch_size loss epsilon "
                "staleness.mean staleness.max weights_version workers",
    "replay": "capacity size bytes bytes_per_transition memory_budget_bytes",
    "r3": "mode deadline_s elapsed_s data_budget consumed time_ratio data_ratio alpha beta "
          "batch_memory_bytes replay_memory_bytes horizons.met horizons.missed "
          "episode_deadlines.met episode_deadlines.missed oom_events",
    "regret": "inaction.value inaction.kind inaction.unit delay.value learning.value",
    "episodes": "count last_return mean_return_100 mean_length_100",
}
"""What programs rely on, by section."""
WORKER = {
    "id", "pid", "state", "inferences", "latency_ms", "takeover_us", "weights_version", "restarts"
}


class Run:
    """The memory of a run that the test writes, and a reader of its figures."""

    def __init__(self, shapes: Mapping[str, Any] | None = None, **config: Any) -> None:
        tensors = (TensorSpec("w", (PARAMETERS,)),)
        blueprint = make_blueprint(rate_hz=RATE_HZ, tensors=tensors, **(shapes or {}))
        self.config = parse_config({"replay": {"capacity": CAPACITY}, **config})
        memory = WorldMemory(self.config, blueprint)
        self.world = World(memory.handles)
        weakref.finalize(self.world, memory.close)
        self.clock = VirtualClock(START_NS / NANO)
        self.order("adaptive")
        self.roles()
        self.reader = StatsReader(self.world, self.clock)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.world, name)

    def order(self, algorithm: str) -> None:
        wanted = {"algorithm": algorithm}
        self.control.write(make_desired(processes=2, rows=2, inference=wanted, go=True))

    def roles(self, *roles: dict[str, Any]) -> None:
        self.status.write({"roles": list(roles), "config": self.config.model_dump(mode="json")})

    def begin(self) -> None:
        self.metrics.environment.anchor_ns = START_NS

    def tick(
        self, tick: int, source: Source = DEFAULT, observed: int = -1, late_ns: int = 0,
        action: Any = 0, slipped_ns: int = 0, reward: float = 0.0,
    ) -> None:
        """One tick, as the environment process runs it."""
        record, name = self.metrics.environment, source.name.lower()
        setattr(record, name, getattr(record, name) + 1)
        record.ticks += 1
        record.decisions += source == AGENT
        time_ns = START_NS + tick * PERIOD_NS + slipped_ns + late_ns
        self.ledger.write(
            tick, observed=observed, time_ns=time_ns, registered_ns=0, lateness_ns=late_ns,
            reward=reward, weights_version=0, episode=0, worker=0, source=source, flags=0,
            action=action,
        )
        self.clock.sleep_until(time_ns / NANO)

    def deposit(self, tick: int, at_s: float, worker: int = 0) -> None:
        self.metrics.inference[worker].deposits += 1
        self.actions.deposit(Deposited(worker, tick - 5, tick, 0, 0, START_NS / NANO + at_s))
        record = self.metrics.inference[worker]
        record.registrations.append(Registration(START_NS + round(at_s * NANO), NANO // 100, tick))

    def figures(self) -> SimpleNamespace:
        return SimpleNamespace(**self.reader.collect())


@pytest.fixture
def run() -> Run:
    return Run()


def numbers(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [each for inner in value.values() for each in numbers(inner)]
    return [value]


def test_every_figure_is_there(run: Run) -> None:
    run.roles({"role": "inference", "index": 0, "pid": 7, "state": "running", "restarts": 0})
    figures = run.reader.collect()
    for section, paths in CONTRACT.items():
        for path in paths.split():
            reduce(lambda found, name: found[name], path.split("."), figures[section])
    assert set(figures["inference"]["workers"][0]) >= WORKER
    assert set(figures["inference"]["workers"][0]["latency_ms"]) == {"p50", "p99", "max"}


def test_unknown_is_none_and_never_zero(run: Run) -> None:
    figures = run.figures()
    clock, actions = figures.clock, figures.actions
    for name in ("uptime_s", "rate_hz", "drift_ms", "lateness_us", "step_us", "reset_ms"):
        assert set(numbers(clock[name])) == {None}, name
    for name in ("inaction_fraction", "strict_inaction_fraction", "inaction_fraction_60s",
                 "interaction_ms", "delay_ticks", "disagreement"):
        assert set(numbers(actions[name])) == {None}, name
    assert figures.inference["estimate_ms"] is None
    assert figures.inference["recommended_processes"] is None
    for name in ("updates_per_s", "loss", "staleness", "weights_version"):
        assert set(numbers(figures.learning[name])) == {None}, name
    assert figures.replay["memory_budget_bytes"] is None
    counted = ("mode", "oom_events", "pressure_events", "decisions")
    assert set(numbers({n: each for n, each in figures.r3.items() if n not in counted})) == {None}
    assert [figures.r3[name] for name in counted] == ["off", 0, 0, 0]
    assert [figures.regret[name]["value"] for name in figures.regret] == [None] * 3
    for name in ("last_return", "mean_return_100", "mean_length_100"):
        assert figures.episodes[name] is None
    # What is counted is known to be nothing.
    assert [actions[name] for name in ("agent", "reused", "default", "overwritten")] == [0] * 4
    assert (figures.episodes["count"], figures.replay["size"], clock["ticks"]) == (0, 0, 0)


def test_clock(run: Run) -> None:
    run.begin()
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
    run.begin()
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
    run.begin()
    run.tick(0)
    record = run.metrics.environment
    record.slips, record.slipped_ns = 2, 300_000_000
    record.anchor_ns += 300_000_000
    run.tick(1, late_ns=2000, slipped_ns=300_000_000)
    clock = run.figures().clock
    assert clock["slips"] == 2
    assert clock["uptime_s"] == pytest.approx(0.320002)
    assert clock["drift_ms"] == pytest.approx(300.002)


def test_uptime_survives_a_restart_of_the_environment(run: Run) -> None:
    record = run.metrics.environment
    # Tick 100 runs 5 s later than the first clock had it.
    record.anchor_ns, record.anchor_tick = START_NS + 100 * PERIOD_NS + 5 * NANO, 100
    record.slipped_ns, record.ticks = 5 * NANO, 101
    run.clock.advance(7.5)
    assert run.figures().clock["uptime_s"] == pytest.approx(7.5)


def test_actions_are_those_of_the_rows(run: Run) -> None:
    run.begin()
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


def test_window_is_sixty_seconds(run: Run) -> None:
    run.begin()
    for tick in range(4000):
        run.tick(tick, DEFAULT if tick < 2500 else AGENT, -1 if tick < 2500 else tick - 2)
    actions = run.figures().actions
    # 3000 ticks, and the one at the window's edge.
    assert actions["inaction_fraction_60s"] == pytest.approx(1500 / 3000, abs=1e-3)
    assert actions["inaction_fraction"] == 2500 / 4000
    run.clock.advance(61.0)
    figures = run.figures()
    assert figures.actions["inaction_fraction_60s"] is None
    assert figures.actions["delay_ticks"]["mean"] is None
    assert figures.clock["rate_hz"] is None
    assert figures.actions["agent"] == 1500


def test_overwritten(run: Run) -> None:
    run.begin()
    for tick in range(10):
        run.deposit(tick, tick * 0.02)
        run.tick(tick, AGENT if tick < 7 else DEFAULT, tick - 3)
    # These two may still be executed.
    run.deposit(11, 0.2)
    run.deposit(12, 0.2)
    assert run.figures().actions["overwritten"] == 3


def test_a_chunk_is_overwritten_if_none_of_its_actions_is_used(run: Run) -> None:
    run.begin()
    record = run.metrics.inference[1]
    for tick in range(10):
        run.tick(tick, DEFAULT, -1)
    for number, tick in enumerate((0, 3, 8, 9, 10)):
        record.deposits += 1
        at_ns = START_NS + number
        record.registrations.append(Registration(at_ns, NANO // 100, tick, 4))
    # The one from tick 3 on has acted, and that from tick 8 on; those from 9 and 10 on may yet.
    run.metrics.environment.decisions = 2
    run.ledger.write(
        10, observed=7, time_ns=START_NS + 10 * PERIOD_NS, registered_ns=START_NS + 2,
        lateness_ns=0, reward=0.0, weights_version=0, episode=0, worker=1, source=AGENT, flags=0,
        action=0, position=2,
    )
    assert run.figures().actions["overwritten"] == 1
    # Of eleven ticks, the last.
    assert run.figures().actions["from_chunk"] == pytest.approx(1 / 11)


@pytest.mark.parametrize("algorithm", ["adaptive", "maximum-time", "unstaggered"])
def test_interaction_time_is_that_of_the_ticks_with_a_new_action(run: Run, algorithm: str) -> None:
    run.begin()
    run.order(algorithm)
    for tick, source in enumerate((AGENT, REUSED, AGENT, DEFAULT, DEFAULT, AGENT)):
        run.tick(tick, source, tick - 5 if source else -1, late_ns=1_000_000 if tick == 2 else 0)
    interaction, gaps_ms = run.figures().actions["interaction_ms"], [41.0, 59.0]
    assert interaction["mean"] == pytest.approx(np.mean(gaps_ms))
    assert interaction["cv"] == pytest.approx(np.std(gaps_ms) / np.mean(gaps_ms))


def test_processes_in_step_do_not_act_five_times_as_often_as_one(run: Run) -> None:
    """Without staggering, N = 5, x = 4.9: five actions at once, of which one is executed."""
    run.begin()
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
        record.inferences, record.weights_version = 2, 40 + index
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
    assert (first["latency_ms"]["p50"], first["latency_ms"]["max"]) == (81.0, 82.0)
    # 83 ms of 20 ms ticks are 5, and so are 86 ms.
    assert inference["recommended_processes"] == 5


@pytest.mark.parametrize(
    ("algorithm", "deadline_ms", "processes"),
    [("maximum-time", None, 5), ("expected-time", 41.5, 2), ("unstaggered", None, None)],
)
def test_recommended_processes(
    algorithm: str, deadline_ms: float | None, processes: int | None
) -> None:
    run = Run(inference={"action_deadline_ms": deadline_ms})
    run.order(algorithm)
    run.metrics.inference[0].registrations.append(Registration(START_NS, 83_000_000, 0))
    run.roles({"role": "inference", "index": 0, "pid": 2, "state": "running", "restarts": 0})
    assert run.figures().inference["recommended_processes"] == processes


def test_learning() -> None:
    run = Run(policy={"epsilon_start": 1.0, "epsilon_end": 0.0, "epsilon_steps": 1000})
    run.figures()
    record = run.metrics.learners[0]
    record.updates, record.samples_consumed, record.loss = 400, 12_800, 0.25
    record.applied = 400
    record.staleness_sum, record.staleness_max, record.update_ns = 800, 9, 12_500_000
    run.control.write(with_changes(run.control.desired, learning={"processes": 1}))
    record.pid = 5
    record.heartbeat_ns = record.applied_ns = START_NS
    for at_s, applied in ((1.0, 0), (3.0, 150), (4.0, 390)):
        record.applied = applied
        record.add_mark(START_NS + round(at_s * NANO))
    record.applied = 400
    run.weights.publish(np.zeros(PARAMETERS, np.float32), WeightsInfo(41, 250))
    run.roles({"role": "learner", "index": 0, "pid": 5, "state": "running", "restarts": 1})
    run.clock.advance(8.0)
    learning = run.figures().learning
    assert learning["updates"] == 400
    assert learning["updates_per_s"] == pytest.approx(50.0)
    assert learning["samples_consumed"] == 12_800
    assert learning["loss"] == 0.25
    assert learning["staleness"] == {"mean": 2.0, "max": 9}
    assert learning["weights_version"] == 41
    assert learning["workers"] == [
        {"index": 0, "pid": 5, "state": "running", "restarts": 1, "update_ms": 12.5, "applied": 400}
    ]
    run.clock.advance(100.0)
    assert run.figures().learning["updates_per_s"] is None


def test_the_exploration_rate_is_that_of_the_newest_action(run: Run) -> None:
    assert run.figures().learning["epsilon"] is None
    for worker, at_s, rate in ((0, 0.01, 0.3), (1, 0.03, 0.1), (0, 0.02, 0.2)):
        run.deposit(1, at_s, worker)
        run.metrics.inference[worker].epsilon = rate
    assert run.figures().learning["epsilon"] == 0.1


def test_the_loss_is_that_of_the_newest_update(run: Run) -> None:
    """A learner that waits beats, too; one that has just come has no loss yet."""
    records = run.metrics.learners
    for record, applied, loss, before_ns, beat_ns in (
        (records[0], 5, 0.5, 2, 3), (records[1], 4, 0.25, 1, 1), (records[2], 0, 0.0, START_NS, 4),
    ):
        record.applied, record.loss = applied, loss
        record.applied_ns, record.heartbeat_ns = START_NS - before_ns, START_NS + beat_ns
    assert run.figures().learning["loss"] == 0.25


def test_the_rate_of_updates_leaves_out_learners_that_were_sent_away(run: Run) -> None:
    run.control.write(with_changes(run.control.desired, learning={"processes": 1}))
    records = run.metrics.learners
    for record, applied in ((records[0], 60), (records[1], 40)):
        record.heartbeat_ns = START_NS
        record.add_mark(START_NS)
        record.applied = applied
    run.clock.advance(2.0)
    assert run.figures().learning["updates_per_s"] == 30.0


def test_a_resumed_run_is_as_far_as_its_weights() -> None:
    run = Run()
    run.weights.publish(np.zeros(PARAMETERS, np.float32), WeightsInfo(41, 250))
    run.clock.advance(1.0)
    assert run.figures().learning["updates"] == 250


def test_acting_only() -> None:
    run = Run(learning={"processes": 0})
    run.clock.advance(5.0)
    learning = run.figures().learning
    assert learning["processes"] == 0
    assert learning["updates_per_s"] is None
    assert learning["loss"] is None


@pytest.mark.parametrize(("ticks", "size"), [(1, 1), (10, 10), (CAPACITY + 5, CAPACITY)])
def test_replay(run: Run, ticks: int, size: int) -> None:
    for tick in (*range(min(ticks, 10)), ticks - 1):
        run.tick(tick)
    replay, per_tick = run.figures().replay, 6 * 5 + 16 + 72
    assert (replay["capacity"], replay["size"]) == (CAPACITY, size)
    assert (replay["bytes"], replay["bytes_per_transition"]) == (size * per_tick, per_tick)


def test_disagreement_is_with_the_first_tick_that_could_have_used_the_frame(run: Run) -> None:
    run.begin()
    for tick, (source, observed, action) in enumerate((
        (DEFAULT, -1, 0), (AGENT, 0, 1), (AGENT, 0, 1), (AGENT, 1, 1), (AGENT, 2, 2),
        (REUSED, 4, 2), (AGENT, 4, 0), (AGENT, 4, 2),
    )):
        run.tick(tick, source, observed, action=action)
    # From frames 0, 0, 1, 2; the ticks after them executed 1, 1, 1, 1. That after frame 4 re-used.
    assert run.figures().actions["disagreement"] == pytest.approx(1 / 4)


def test_the_least_possible_delay_is_no_disagreement(run: Run) -> None:
    run.begin()
    for tick in range(20):
        run.tick(tick, AGENT, tick - 1, action=tick % 2)
    assert run.figures().actions["disagreement"] == 0.0


def test_default_ticks_are_inaction_and_no_disagreement(run: Run) -> None:
    run.begin()
    for tick in range(20):
        acts = tick % 2 == 0
        run.tick(tick, AGENT if acts else DEFAULT, tick - 2 if acts else -1, action=int(acts))
    assert run.figures().actions["disagreement"] is None


def test_regret_is_in_units_of_reward(run: Run) -> None:
    run.begin()
    run.tick(0, DEFAULT)
    unknown = {"value": None, "kind": "unknown", "unit": "reward"}
    assert run.figures().regret == dict.fromkeys(("inaction", "delay", "learning"), unknown)
    run.tick(1, DEFAULT)
    run.tick(2, AGENT, 0)
    run.metrics.environment.reward_low, run.metrics.environment.reward_high = -0.5, 2.0
    seen = {"value": 5.0, "kind": "estimate", "unit": "reward"}
    assert run.figures().regret["inaction"] == seen
    run.world.blueprint = replace(run.blueprint, reward_range=(-1.0, 2.0))
    declared = {"value": 6.0, "kind": "bound", "unit": "reward"}
    assert run.figures().regret["inaction"] == declared
    # Who declares less than it pays is not believed.
    run.world.blueprint = replace(run.blueprint, reward_range=(0.0, 1.0))
    assert run.figures().regret["inaction"] == seen


def test_episodes(run: Run) -> None:
    for number in range(150):
        run.metrics.environment.episodes.append(FinishedEpisode(number, number, number / 2, number))
    found = run.figures().episodes
    trend = found.pop("trend")
    assert (trend["direction"], trend["episodes"], trend["change"]) == ("rising", 150, 37.5)
    assert 0.0 <= trend["p_value"] < 1e-9
    assert found == {
        "count": 150, "faults": 0, "last_return": 74.5,
        "mean_return_100": np.mean(np.arange(50, 150)) / 2,
        "mean_length_100": np.mean(np.arange(50, 150)),
    }


def test_a_few_episodes_have_no_trend(run: Run) -> None:
    run.metrics.environment.episodes.append(FinishedEpisode(9, 9, 1.0, 0))
    assert run.figures().episodes["trend"] == dict.fromkeys(
        ("direction", "change", "episodes", "p_value")
    )


def test_figures_begin_anew_when_the_inference_settings_have_changed(run: Run) -> None:
    record = run.metrics.inference[0]
    record.registrations.append(Registration(START_NS - 5 * NANO, 90 * 1_000_000, 0))
    record.registrations.append(Registration(START_NS, 10 * 1_000_000, 0))
    run.roles({"role": "inference", "index": 0, "pid": 2, "state": "running", "restarts": 0})
    now = run.figures()
    assert now.inference["estimate_ms"] == 50.0
    assert now.clock["window_s"] == 60.0
    since = START_NS / NANO - 2.0
    run.control.write(replace(run.control.desired, inference_since=since))
    after = run.figures()
    assert after.inference["estimate_ms"] == 10.0
    assert 2.0 <= after.clock["window_s"] < 60.0


# ---- deadlines and memory


def test_r3_figures_of_a_running_horizon(run: Run) -> None:
    run.control.write(
        with_changes(
            run.control.desired, learning={"batch_size": 16},
            r3={"mode": "step", "deadline_s": 20.0, "data_budget": 5000},
        )
    )
    run.horizon.write(
        Horizon(
            number=4, mode=4, running=1, deadline_s=20.0, data_budget=5000, elapsed_ns=5 * NANO,
            consumed=500, batch_size=64, batch_cap=48, safe_size=48, base_bytes=1000,
            time_ratio=0.9, data_ratio=0.9, met=3, missed=1, early_exits=1, episode_met=30,
            episode_missed=2,
        )
    )
    run.horizon.reserve(
        Reservations(
            budget_bytes=900, used_bytes=800, baseline_bytes=300, batch_bytes=100,
            replay_bytes=400, ticks_limit=77, alpha=1.5, beta=-1.0, pressure_events=6,
        )
    )
    run.metrics.learners[0].out_of_memory, run.metrics.learners[1].out_of_memory = 1, 2
    figures = run.figures()
    assert figures.learning["batch_size"] == 48
    assert figures.replay["memory_budget_bytes"] == 900
    assert figures.r3 == {
        "mode": "step", "deadline_s": 20.0, "elapsed_s": 5.0, "data_budget": 5000, "consumed": 500,
        "time_ratio": 0.25, "data_ratio": 0.1, "alpha": 1.5, "beta": -1.0,
        "batch_memory_bytes": 100, "replay_memory_bytes": 400, "horizons": {"met": 3, "missed": 1},
        "episode_deadlines": {"met": 30, "missed": 2}, "early_exits": 1, "batch_cap": 48,
        "batch_base_bytes": 1000, "ticks_limit": 77, "used_bytes": 800, "baseline_bytes": 300,
        "memory_budget_bytes": 900, "oom_events": 3, "pressure_events": 6, "decisions": 0,
    }


def test_a_horizon_whose_clock_does_not_run_yet_has_used_nothing_known(run: Run) -> None:
    run.horizon.write(Horizon(mode=4, deadline_s=20.0, data_budget=5000))
    assert {run.figures().r3[name] for name in ("elapsed_s", "consumed", "time_ratio")} == {None}


def test_outcomes_stay_known_after_deadlines_are_switched_off(run: Run) -> None:
    run.horizon.write(Horizon(number=2, mode=0, running=1, met=2))
    figures = run.figures().r3
    assert figures["horizons"] == {"met": 2, "missed": 0}
    assert figures["elapsed_s"] is None


def test_a_cluster_s_figures_are_there_only_with_a_cluster() -> None:
    assert "cluster" not in Run().reader.collect()
    run = Run(learning={"where": "cluster"})
    assert run.reader.collect()["cluster"]["reason"] == "the gateway has not begun"
    now = run.clock.now()
    run.cluster.write({"at": now - 1.0, "connected": True, "since": now - 12.0})
    found = run.reader.collect()["cluster"]
    assert (found["connected"], found["since_s"], found["emulated"]) == (True, 12.0, None)
