"""What can be drawn of the last seconds, from rows and registrations that were made by hand."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from rtagent.clock import NANO
from rtagent.memory.actions import SLOTS
from rtagent.memory.process_metrics import Registration
from rtagent.staggering.arbiter import Deposited
from rtagent.telemetry.timeline import read_timeline
from tests.desired import make_desired
from tests.telemetry.counted_run import AGENT, DEFAULT, PERIOD_NS, REUSED, START_NS, Run

PERIOD_MS = PERIOD_NS / 1e6
STARTED_S = START_NS / NANO - 2.0


@pytest.fixture
def run() -> Run:
    return Run().begin()


def drawn(run: Run, seconds: float = 3.0, **status: Any) -> dict[str, Any]:
    return read_timeline(
        run,  # type: ignore[arg-type]
        {"started_s": STARTED_S, **status}, seconds, run.clock.now(),
    )


def register(run: Run, worker: int, frame: int, tick: int, at_ms: float, took_ms: float) -> None:
    """Register an action as an inference process does; times count from the first tick."""
    registered_ns = START_NS + round(at_ms * 1e6)
    run.actions.deposit(Deposited(worker, frame, tick, 0, 0, registered_ns / NANO))
    registration = Registration(registered_ns, round(took_ms * 1e6), tick)
    run.metrics.inference[worker].registrations.append(registration)


def test_ticks_say_what_was_executed_and_when(run: Run) -> None:
    run.tick(0)
    run.tick(1, AGENT, observed=0, late_ns=500_000, action=2)
    run.tick(2, REUSED, observed=0, action=1)
    run.tick(3, DEFAULT, action=0)
    found = drawn(run)
    assert found["ticks"] == {
        "tick": [0, 1, 2, 3],
        "at_ms": [2000.0, 2000.5 + PERIOD_MS, 2000 + 2 * PERIOD_MS, 2000 + 3 * PERIOD_MS],
        "source": ["default", "agent", "reused", "default"],
        "worker": [None, 0, 0, None],
        "delay": [None, 1, 2, None],
        "position": [None, 0, 0, None],
        "action": ["NOOP", "RIGHT", "LEFT", "NOOP"],
        "components": [None, None, None, None],
    }
    assert found["tick_ms"] == PERIOD_MS
    assert found["now_ms"] == pytest.approx(2000 + 3 * PERIOD_MS)


def test_continuous_actions_are_their_numbers() -> None:
    run = Run({"action_shape": (2,), "action_dtype": "float32", "action_meanings": ()}).begin()
    run.tick(0, action=[0.0, 0.0])
    run.tick(1, AGENT, observed=0, action=[0.5, -1.25])
    ticks = drawn(run)["ticks"]
    assert ticks["components"] == [[0.0, 0.0], [0.5, -1.25]]
    assert ticks["action"] == [None, None]


def test_a_bar_runs_from_the_published_frame_to_the_registration(run: Run) -> None:
    for tick in range(6):
        run.tick(tick)
    # The second waited 5 ms before it registered, as Algorithm 1 does.
    register(run, 0, frame=1, tick=5, at_ms=70.0, took_ms=49.0)
    register(run, 1, frame=2, tick=6, at_ms=90.0, took_ms=44.0)
    bars = drawn(run)["bars"]
    assert bars == {
        "worker": [0, 1], "tick": [5, 6], "start_ms": [2020.0, 2040.0], "end_ms": [2070.0, 2090.0]
    }


def test_a_bar_does_not_begin_before_the_end_of_the_previous_one(run: Run) -> None:
    for tick in range(6):
        run.tick(tick)
    register(run, 0, frame=0, tick=3, at_ms=45.0, took_ms=44.0)
    register(run, 0, frame=2, tick=6, at_ms=90.0, took_ms=44.9)
    register(run, 1, frame=2, tick=7, at_ms=91.0, took_ms=50.0)
    bars = drawn(run)["bars"]
    assert bars["worker"] == [0, 0, 1]
    assert bars["start_ms"] == [2000.0, 2045.0, 2040.0]


def test_a_bar_whose_slot_was_used_again_is_as_long_as_the_inference(run: Run) -> None:
    for tick in range(6):
        run.tick(tick)
    register(run, 0, frame=1, tick=4, at_ms=70.0, took_ms=30.0)
    register(run, 0, frame=5, tick=4 + SLOTS, at_ms=120.0, took_ms=10.0)
    assert drawn(run)["bars"]["start_ms"] == [2040.0, 2100.0]


def test_columns_are_sorted_by_time_and_end_at_the_window(run: Run) -> None:
    for tick in range(200):
        run.tick(tick, AGENT, observed=tick - 1)
    for tick in range(1, 200):
        register(run, tick % 3 % 2, tick - 1, tick, at_ms=tick * PERIOD_MS - 1, took_ms=15.0)
    found = drawn(run, seconds=1.0)
    assert found["ticks"]["tick"] == list(range(149, 200))
    assert found["bars"]["end_ms"] == sorted(found["bars"]["end_ms"])
    assert found["bars"]["tick"] == list(range(150, 200))
    assert json.loads(json.dumps(found)) == found


def test_workers_come_from_the_report(run: Run) -> None:
    roles = [
        {"role": "environment", "index": 0, "state": "running"},
        {"role": "inference", "index": 0, "state": "running"},
        {"role": "inference", "index": 1, "state": "backoff"},
    ]
    assert drawn(run, roles=roles)["workers"] == [
        {"id": 0, "state": "running"}, {"id": 1, "state": "backoff"}
    ]


def test_ticks_of_a_restored_replay_are_left_out(run: Run) -> None:
    """Their times are of another clock, and may seem recent."""
    for tick in range(6):
        run.tick(tick)
    run.world.first_tick = 4
    assert drawn(run)["ticks"]["tick"] == [4, 5]


def test_before_the_first_tick_there_is_nothing(run: Run) -> None:
    found = read_timeline(run, {}, 3.0, run.clock.now())  # type: ignore[arg-type]
    assert found["now_ms"] == 0.0
    assert found["ticks"]["tick"] == found["bars"]["tick"] == found["workers"] == []


def test_without_a_start_the_time_counts_from_the_first_tick(run: Run) -> None:
    run.tick(0)
    run.tick(1)
    found = read_timeline(run, {}, 3.0, run.clock.now())  # type: ignore[arg-type]
    assert found["ticks"]["at_ms"] == [0.0, PERIOD_MS]


@pytest.mark.realtime
def test_many_processes_cost_little(run: Run) -> None:
    for tick in range(500):
        run.tick(tick, AGENT, observed=tick - 30)
        register(run, tick % 34, max(0, tick - 30), tick, at_ms=tick * PERIOD_MS - 1, took_ms=500)
    run.control.write(make_desired(processes=34, rows=34, go=True))
    best = 1.0
    for _ in range(10):
        began = time.perf_counter()
        drawn(run, seconds=10.0)
        best = min(best, time.perf_counter() - began)
    assert best < 0.05
