"""Every figure of the contract, from rows that were made by hand."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rtagent.clock import VirtualClock
from rtagent.config_reading import parse_config
from rtagent.memory.actions import NANO, ActionCells
from rtagent.memory.blueprint import TensorSpec
from rtagent.memory.board import Board, add_episode, add_registration
from rtagent.memory.cells import JsonCell
from rtagent.memory.control import Control, Orders
from rtagent.memory.frames import FrameRing
from rtagent.memory.horizon import Horizon, HorizonRecord, Reservations
from rtagent.memory.ledger import Ledger
from rtagent.memory.weights import WeightBuffers, WeightsInfo
from rtagent.staggering.arbiter import Deposited, Source
from rtagent.stats import StatsReader
from tests.conftest import make_blueprint

RATE_HZ = 50.0
PERIOD_NS = 20_000_000
CAPACITY = 8192
PARAMETERS = 4
START_NS = 1000 * NANO
DEFAULT, AGENT, REUSED = Source.DEFAULT, Source.AGENT, Source.REUSED

CONTRACT = {
    "clock": {"uptime_s": None, "ticks": None, "rate_hz": None, "target_rate_hz": None,
              "drift_ms": None, "slips": None,
              "lateness_us": {"p50": None, "p99": None, "p999": None, "max": None}},
    "actions": {"agent": None, "reused": None, "default": None, "inaction_fraction": None,
                "strict_inaction_fraction": None, "inaction_fraction_60s": None,
                "overwritten": None, "interaction_ms": {"mean": None, "cv": None},
                "delay_ticks": {"mean": None, "p50": None, "p99": None, "max": None}},
    "inference": {"processes": None, "ready": None, "algorithm": None, "estimate_ms": None,
                  "recommended_processes": None, "workers": None},
    "learning": {"processes": None, "updates": None, "updates_per_s": None,
                 "samples_consumed": None, "batch_size": None, "loss": None, "epsilon": None,
                 "staleness": {"mean": None, "max": None}, "weights_version": None,
                 "workers": None},
    "replay": {"capacity": None, "size": None, "bytes": None, "bytes_per_transition": None,
               "memory_budget_bytes": None},
    "r3": {"mode": None, "deadline_s": None, "elapsed_s": None, "data_budget": None,
           "consumed": None, "time_ratio": None, "data_ratio": None, "alpha": None, "beta": None,
           "batch_memory_bytes": None, "replay_memory_bytes": None,
           "horizons": {"met": None, "missed": None},
           "episode_deadlines": {"met": None, "missed": None}, "oom_events": None},
    "regret": {name: {"value": None, "kind": None, "unit": None}
               for name in ("inaction", "delay", "learning")},
    "episodes": {"count": None, "last_return": None, "mean_return_100": None,
                 "mean_length_100": None},
}
WORKER = {"id", "pid", "state", "inferences", "latency_ms", "weights_version", "restarts"}


def memory(size: int) -> memoryview:
    return memoryview(np.zeros(-(-size // 8), np.int64)).cast("B")


class Run:
    """The memory of a run that the test writes, and a reader of its figures."""

    def __init__(self, **config: Any) -> None:
        blueprint = make_blueprint(rate_hz=RATE_HZ, tensors=(TensorSpec("w", (PARAMETERS,)),))
        frames = memory(FrameRing.size(blueprint, CAPACITY))
        ledger = memory(Ledger.size(blueprint, CAPACITY))
        cells = memory(ActionCells.size(blueprint))
        weights = memory(WeightBuffers.size(PARAMETERS))
        FrameRing.format(frames)
        Ledger.format(ledger)
        ActionCells.format(cells, blueprint)
        WeightBuffers.format(weights)
        self.config = parse_config(config)
        self.ledger = Ledger(ledger, blueprint, CAPACITY)
        self.actions = ActionCells(cells, blueprint)
        self.board = Board(memory(Board.size()))
        self.weights = WeightBuffers(weights, PARAMETERS)
        self.control = Control(memory(Control.size()))
        horizon = memory(HorizonRecord.size())
        HorizonRecord.format(horizon)
        self.horizon = HorizonRecord(horizon)
        self.turns = SimpleNamespace(expired=0)
        self.first_tick = 0
        self.status = JsonCell(memory(JsonCell.size(1 << 16)), 1 << 16)
        self.frames = FrameRing(frames, blueprint, CAPACITY)
        self.blueprint = blueprint
        self.clock = VirtualClock(START_NS / NANO)
        self.order("adaptive")
        self.roles()
        self.reader = StatsReader(self, self.clock)  # type: ignore[arg-type]

    def order(self, algorithm: str) -> None:
        self.control.write(Orders(2, 2, algorithm, 2, 0.0, "constant", 0.0, go=True))

    def roles(self, *roles: dict[str, Any]) -> None:
        self.status.write({"roles": list(roles), "config": self.config.model_dump(mode="json")})

    def begin(self) -> None:
        self.board.environment["anchor_ns"] = START_NS

    def tick(
        self, tick: int, source: Source = DEFAULT, observed: int = -1, late_ns: int = 0,
        action: int = 0, slipped_ns: int = 0,
    ) -> None:
        """One tick, as the environment process runs it."""
        name = ("default", "agent", "reused")[source]
        self.board.environment[name] += 1
        self.board.environment["ticks"] += 1
        time_ns = START_NS + tick * PERIOD_NS + slipped_ns + late_ns
        self.ledger.write(
            tick, observed=observed, time_ns=time_ns, registered_ns=0, lateness_ns=late_ns,
            reward=0.0, weights_version=0, episode=0, worker=0, source=source, flags=0,
            action=action,
        )
        self.clock.sleep_until(time_ns / NANO)

    def deposit(self, tick: int, at_s: float, worker: int = 0) -> None:
        self.board.inference["deposits"][worker] += 1
        self.actions.deposit(Deposited(worker, tick - 5, tick, 0, 0, START_NS / NANO + at_s))
        record = self.board.record("inference", worker)
        add_registration(record, START_NS + round(at_s * NANO), NANO // 100, tick)

    def figures(self) -> SimpleNamespace:
        return SimpleNamespace(**self.reader.collect())


@pytest.fixture
def run() -> Run:
    return Run()


def names_missing(found: Any, contract: Any, path: str = "") -> list[str]:
    missing = []
    for name, inner in contract.items():
        if name not in found:
            missing.append(path + name)
        elif isinstance(inner, dict):
            missing += names_missing(found[name], inner, f"{path}{name}.")
    return missing


def numbers(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [each for inner in value.values() for each in numbers(inner)]
    return [value]


def test_every_figure_is_there_before_anything_has_happened(run: Run) -> None:
    assert names_missing(run.reader.collect(), CONTRACT) == []


def test_every_figure_is_there_while_it_runs(run: Run) -> None:
    run.begin()
    run.roles({"role": "inference", "index": 0, "pid": 7, "state": "running", "restarts": 0})
    for tick in range(9):
        run.deposit(tick, tick * 0.02)
        run.tick(tick, AGENT, tick - 1)
    add_registration(run.board.record("inference", 0), START_NS, NANO, 0)
    figures = run.reader.collect()
    assert names_missing(figures, CONTRACT) == []
    assert set(figures["inference"]["workers"][0]) >= WORKER
    assert set(figures["inference"]["workers"][0]["latency_ms"]) == {"p50", "p99", "max"}


def test_unknown_is_none_and_never_zero(run: Run) -> None:
    figures = run.figures()
    clock, actions = figures.clock, figures.actions
    assert [clock[name] for name in ("uptime_s", "rate_hz", "drift_ms", "step_us")] == [None] * 4
    assert set(numbers(clock["lateness_us"])) == {None}
    for name in ("inaction_fraction", "strict_inaction_fraction", "inaction_fraction_60s",
                 "interaction_ms", "delay_ticks"):
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


def test_slip_is_drift_and_no_loss_of_uptime(run: Run) -> None:
    run.begin()
    run.tick(0)
    record = run.board.environment
    record["slips"], record["slipped_ns"] = 2, 300_000_000
    record["anchor_ns"] += 300_000_000
    run.tick(1, late_ns=2000, slipped_ns=300_000_000)
    clock = run.figures().clock
    assert clock["slips"] == 2
    assert clock["uptime_s"] == pytest.approx(0.320002)
    assert clock["drift_ms"] == pytest.approx(300.002)


def test_uptime_survives_a_restart_of_the_environment(run: Run) -> None:
    record = run.board.environment
    # Tick 100 runs 5 s later than the first clock had it.
    record["anchor_ns"], record["anchor_tick"] = START_NS + 100 * PERIOD_NS + 5 * NANO, 100
    record["slipped_ns"], record["ticks"] = 5 * NANO, 101
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


@pytest.mark.parametrize(
    ("algorithm", "gaps_ms"),
    # An adaptive action takes effect at the tick that it was promised for.
    [("adaptive", [20.0, 20.0, 20.0]), ("maximum-time", [29.0, 2.0, 28.0])],
)
def test_interaction_time(run: Run, algorithm: str, gaps_ms: list[float]) -> None:
    run.begin()
    run.order(algorithm)
    for tick, at_s in ((1, 0.001), (2, 0.030), (3, 0.032), (4, 0.060)):
        run.deposit(tick, at_s, worker=tick % 2)
    run.clock.advance(0.1)
    interaction = run.figures().actions["interaction_ms"]
    assert interaction["mean"] == pytest.approx(np.mean(gaps_ms))
    assert interaction["cv"] == pytest.approx(np.std(gaps_ms) / np.mean(gaps_ms), abs=1e-6)


def test_inference(run: Run) -> None:
    for index, times_ms in ((0, (80, 82)), (1, (84, 86))):
        record = run.board.record("inference", index)
        record["inferences"], record["weights_version"] = 2, 40 + index
        add_registration(record, START_NS - 61 * NANO, 5 * NANO, 0)
        for time_ms in times_ms:
            add_registration(record, START_NS, time_ms * 1_000_000, 0)
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
    # 83 ms of 20 ms ticks are 5; one more, for they vary.
    assert inference["recommended_processes"] == 6


@pytest.mark.parametrize(
    ("algorithm", "deadline_ms", "processes"),
    [("maximum-time", None, 5), ("expected-time", 41.5, 2), ("unstaggered", None, None)],
)
def test_recommended_processes(
    algorithm: str, deadline_ms: float | None, processes: int | None
) -> None:
    run = Run(inference={"action_deadline_ms": deadline_ms})
    run.order(algorithm)
    add_registration(run.board.record("inference", 0), START_NS, 83_000_000, 0)
    run.roles({"role": "inference", "index": 0, "pid": 2, "state": "running", "restarts": 0})
    assert run.figures().inference["recommended_processes"] == processes


def test_learning() -> None:
    run = Run(policy={"epsilon_start": 1.0, "epsilon_end": 0.0, "epsilon_steps": 1000})
    run.figures()
    record = run.board.learners[0:1]
    record["updates"], record["samples_consumed"], record["loss"] = 400, 12_800, 0.25
    record["applied"] = 400
    record["staleness_sum"], record["staleness_max"], record["update_ns"] = 800, 9, 12_500_000
    record["pid"], record["updates_per_s"] = 5, 50.0
    record["heartbeat_ns"] = START_NS
    run.weights.publish(np.zeros(PARAMETERS, np.float32), WeightsInfo(41, 250))
    run.roles({"role": "learner", "index": 0, "pid": 5, "state": "running", "restarts": 1})
    run.clock.advance(8.0)
    learning = run.figures().learning
    assert learning["updates"] == 400
    assert learning["updates_per_s"] == pytest.approx(50.0)
    assert learning["samples_consumed"] == 12_800
    assert learning["loss"] == 0.25
    # Of the weights that act, not of those that learn.
    assert learning["epsilon"] == 0.75
    assert learning["staleness"] == {"mean": 2.0, "max": 9}
    assert learning["weights_version"] == 41
    assert learning["workers"] == [
        {"index": 0, "pid": 5, "state": "running", "restarts": 1, "update_ms": 12.5,
         "applied": 400}
    ]
    record["updates_per_s"] = np.nan
    assert run.figures().learning["updates_per_s"] is None
    record["updates_per_s"] = 50.0
    run.clock.advance(100.0)
    assert run.figures().learning["updates_per_s"] is None


def test_a_resumed_run_is_as_far_as_its_weights() -> None:
    run = Run()
    run.figures()
    run.weights.publish(np.zeros(PARAMETERS, np.float32), WeightsInfo(41, 250))
    run.clock.advance(1.0)
    assert run.figures().learning["updates"] == 250


def test_acting_only() -> None:
    run = Run(learning={"processes": 0}, policy={"epsilon_end": 0.03})
    run.figures()
    run.clock.advance(5.0)
    learning = run.figures().learning
    assert (learning["processes"], learning["epsilon"]) == (0, 0.03)
    assert learning["updates_per_s"] is None
    assert learning["loss"] is None


@pytest.mark.parametrize(("ticks", "size"), [(1, 1), (10, 10), (CAPACITY + 5, CAPACITY)])
def test_replay(run: Run, ticks: int, size: int) -> None:
    for tick in (*range(min(ticks, 10)), ticks - 1):
        run.tick(tick)
    replay, per_tick = run.figures().replay, 6 * 5 + 16 + 64
    assert (replay["capacity"], replay["size"]) == (CAPACITY, size)
    assert (replay["bytes"], replay["bytes_per_transition"]) == (size * per_tick, per_tick)


def test_regret(run: Run) -> None:
    run.begin()
    run.tick(0, DEFAULT, action=0)
    run.tick(1, DEFAULT, action=1)
    # Computed from frames 0, 1 and 2, when 0, 1 and 1 were executed.
    run.tick(2, AGENT, 0, action=1)
    run.tick(3, AGENT, 1, action=1)
    run.tick(4, AGENT, 2, action=2)
    regret = run.figures().regret
    assert regret["inaction"] == {"value": 2, "kind": "measured", "unit": "default ticks"}
    assert regret["delay"]["value"] == pytest.approx(2 / 3)
    assert regret["delay"]["kind"] == "measured"
    assert regret["learning"]["value"] is None
    assert regret["learning"]["kind"] == "bound"


def test_regret_is_unknown_where_a_row_is_missing(run: Run) -> None:
    run.begin()
    run.tick(0, AGENT, -1)
    run.tick(2, AGENT, 0)
    assert run.figures().regret["delay"]["value"] is None


def test_episodes(run: Run) -> None:
    for number in range(150):
        add_episode(run.board.environment, number, number, length=number, total=number / 2)
    assert run.figures().episodes == {
        "count": 150, "faults": 0, "last_return": 74.5,
        "mean_return_100": np.mean(np.arange(50, 150)) / 2,
        "mean_length_100": np.mean(np.arange(50, 150)),
    }


# ---- deadlines and memory


def test_r3_figures_of_a_running_horizon(run: Run) -> None:
    run.control.write(
        replace(
            run.control.orders, r3_mode="step", deadline_s=20.0, data_budget=5000, batch_size=16,
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
    run.board.learners["out_of_memory"][:2] = (1, 2)
    figures = run.figures()
    assert figures.learning["batch_size"] == 48
    assert figures.replay["memory_budget_bytes"] == 900
    assert figures.r3 == {
        "mode": "step", "deadline_s": 20.0, "elapsed_s": 5.0, "data_budget": 5000,
        "consumed": 500, "time_ratio": 0.25, "data_ratio": 0.1, "alpha": 1.5, "beta": -1.0,
        "batch_memory_bytes": 100, "replay_memory_bytes": 400,
        "horizons": {"met": 3, "missed": 1}, "episode_deadlines": {"met": 30, "missed": 2},
        "early_exits": 1, "batch_cap": 48, "batch_base_bytes": 1000, "ticks_limit": 77,
        "used_bytes": 800, "baseline_bytes": 300, "memory_budget_bytes": 900, "oom_events": 3,
        "pressure_events": 6, "decisions": 0,
    }


def test_a_horizon_whose_clock_does_not_run_yet_has_used_nothing_known(run: Run) -> None:
    run.horizon.write(Horizon(mode=4, deadline_s=20.0, data_budget=5000))
    assert {run.figures().r3[name] for name in ("elapsed_s", "consumed", "time_ratio")} == {None}


def test_outcomes_stay_known_after_deadlines_are_switched_off(run: Run) -> None:
    run.horizon.write(Horizon(number=2, mode=0, running=1, met=2))
    figures = run.figures().r3
    assert figures["horizons"] == {"met": 2, "missed": 0}
    assert figures["elapsed_s"] is None
