"""Every figure of the contract, from rows that were made by hand."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
import pytest

from rtagent.clock import NANO, VirtualClock
from rtagent.memory.horizon import Horizon, Reservations
from rtagent.memory.process_metrics import FinishedEpisode, Registration
from rtagent.telemetry.stats import WINDOW_S, StatsReader
from tests.desired import with_changes
from tests.telemetry.counted_run import (
    AGENT,
    CAPACITY,
    DEFAULT,
    RATE_HZ,
    START_NS,
    Run,
)

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


def numbers(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [each for inner in value.values() for each in numbers(inner)]
    return [value]


def test_every_figure_is_there(run: Run) -> None:
    run.running(inference=1)
    figures = run.reader.collect()
    for section, paths in CONTRACT.items():
        for path in paths.split():
            reduce(lambda found, name: found[name], path.split("."), figures[section])
    assert set(figures["inference"]["workers"][0]) >= WORKER
    assert set(figures["inference"]["workers"][0]["latency_ms"]) == {"p50", "p99", "max"}


def test_unknown_is_none_and_never_zero(run: Run) -> None:
    run.running(1, learner=1)
    figures = run.figures()
    assert figures.inference["workers"][0]["weights_version"] is None
    assert figures.learning["workers"][0]["update_ms"] is None
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


@pytest.mark.parametrize(("ticks", "size"), [(1, 1), (10, 10), (CAPACITY + 5, CAPACITY)])
def test_replay(run: Run, ticks: int, size: int) -> None:
    for tick in (*range(min(ticks, 10)), ticks - 1):
        run.tick(tick)
    replay, per_tick = run.figures().replay, 6 * 5 + 16 + 72
    assert (replay["capacity"], replay["size"]) == (CAPACITY, size)
    assert (replay["bytes"], replay["bytes_per_transition"]) == (size * per_tick, per_tick)


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


def test_figures_begin_anew_when_the_inference_settings_have_changed(run: Run) -> None:
    record = run.metrics.inference[0]
    record.registrations.append(Registration(START_NS - 5 * NANO, 90 * 1_000_000, 0))
    record.registrations.append(Registration(START_NS, 10 * 1_000_000, 0))
    run.running(inference=1)
    now = run.figures()
    assert now.inference["estimate_ms"] == 50.0
    assert now.clock["window_s"] == 60.0
    since = START_NS / NANO - 2.0
    run.control.write(replace(run.control.desired, inference_since=since))
    after = run.figures()
    assert after.inference["estimate_ms"] == 10.0
    assert 2.0 <= after.clock["window_s"] < 60.0


def test_figures_cover_the_ticks_that_a_short_replay_keeps() -> None:
    run = Run(replay={"capacity": 2048}).begin()
    for tick in range(3000):
        run.tick(tick, AGENT if tick >= 1500 else DEFAULT, tick - 1)
    figures, oldest = run.reader.read(), run.ledger.oldest
    assert figures.clock.window_s == pytest.approx((2999 - oldest) / RATE_HZ)
    inaction = (1500 - oldest) / (3000 - oldest)
    assert figures.actions.inaction_fraction_window == pytest.approx(inaction)
    assert figures.actions.inaction_fraction_60s is None
    for tick in range(3000, 6000):
        run.tick(tick, AGENT, tick - 1)
        if tick % 1000 == 0:
            run.reader.read()
    figures = run.reader.read()
    assert figures.clock.window_s == WINDOW_S
    assert figures.actions.inaction_fraction_60s == 0.0


@pytest.mark.parametrize("now", [0.3, 40.3, 59.9])
def test_figures_cover_a_minute_on_a_machine_that_has_just_started(run: Run, now: float) -> None:
    assert StatsReader(run.world, VirtualClock(now)).collect()["clock"]["window_s"] == 60.0


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


def test_the_use_of_a_horizon_that_has_not_begun_is_unknown(run: Run) -> None:
    run.horizon.write(Horizon(mode=4, deadline_s=20.0, data_budget=5000))
    assert {run.figures().r3[name] for name in ("elapsed_s", "consumed", "time_ratio")} == {None}
    assert run.figures().r3["horizons"] == {"met": None, "missed": None}
    run.horizon.write(Horizon(mode=4, running=1, deadline_s=20.0, data_budget=5000))
    assert run.figures().r3["horizons"] == {"met": 0, "missed": 0}


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
