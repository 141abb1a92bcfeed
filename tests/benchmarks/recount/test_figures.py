"""The second count, against rows and registrations that were written by hand."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks.recount.episodes import against_window, finished, trend
from benchmarks.recount.figures import (
    KEPT,
    inference_times,
    of_rows,
    overwritten,
    recommended,
)
from benchmarks.recount.raw_ledger import AGENT, DEFAULT, REUSED, ROW
from benchmarks.recount.witness import REGISTERED, View

PERIOD_NS = 20_000_000
RATE_HZ = 50.0
WANTED = {"algorithm": "adaptive", "action_deadline_ms": None}


def view(*ticks: tuple[int, int, int], registered: Any = ()) -> View:
    """Ticks as (source, observed, action), on time, and (worker, tick, registered_ns)."""
    rows = np.zeros(len(ticks), ROW)
    for tick, (source, observed, action) in enumerate(ticks):
        rows[tick]["tick"], rows[tick]["time_ns"] = tick, tick * PERIOD_NS
        rows[tick]["source"], rows[tick]["observed"] = source, observed
        rows[tick]["action"], rows[tick]["registered_ns"] = action, tick
    actions = np.zeros(len(registered), REGISTERED)
    for each, (worker, tick, at) in zip(actions, registered, strict=True):
        each["worker"], each["tick"], each["registered_ns"] = worker, tick, at
        each["ticks"] = 1
    horizon = SimpleNamespace()
    return View(1.0, rows, actions, [], [], horizon, [], {})


def test_what_was_executed() -> None:
    found = of_rows(
        view((DEFAULT, -1, 0), (AGENT, 0, 1), (REUSED, 1, 1), (AGENT, 1, 2), (AGENT, 2, 0)),
        RATE_HZ,
    )
    assert [found[f"actions.{name}"] for name in ("agent", "reused", "default")] == [3, 1, 1]
    assert found["actions.inaction_fraction"] == 0.2
    assert found["actions.strict_inaction_fraction"] == pytest.approx(0.4)
    assert found["actions.from_chunk"] == 0.0
    # Ticks 1, 3 and 4.
    assert found["actions.interaction_ms.mean"] == 30.0
    assert found["actions.interaction_ms.cv"] == pytest.approx(1 / 3)
    assert found["actions.delay_ticks.max"] == 2.0
    # From frame 0: 1 and 1; from frame 2: 0, and 2 was executed; tick 2 re-used.
    assert found["actions.disagreement"] == 0.5
    assert found["clock.target_rate_hz"] == pytest.approx(RATE_HZ)
    assert found["clock.slips"] == 0


def test_later_actions_of_a_chunk_are_not_compared() -> None:
    one = view((AGENT, -1, 1), (AGENT, 0, 1), (AGENT, 0, 2), (AGENT, 0, 1), (AGENT, 3, 1))
    one.rows["position"][:] = 0, 0, 1, 2, 0
    assert of_rows(one, RATE_HZ)["actions.disagreement"] == 0.0


def test_a_slip_is_a_due_time_that_jumps() -> None:
    one = view(*[(DEFAULT, -1, 0)] * 9)
    one.rows["time_ns"][5:] += 3 * PERIOD_NS
    found = of_rows(one, RATE_HZ)
    assert found["clock.slips"] == 1
    assert found["clock.drift_ms"] == pytest.approx(60.0)


def test_overwritten_is_neither_executed_nor_still_to_come() -> None:
    one = view(
        (AGENT, -1, 0), (AGENT, -1, 0), registered=[(0, 0, 0), (0, 1, 1), (1, 1, 7), (1, 2, 9)]
    )
    assert overwritten(one) == 1
    # Two of these are chunks that reach beyond the newest tick.
    one.registered["ticks"] = [1, 9, 2, 1]
    assert overwritten(one) == 0


def test_inference_times_are_those_of_the_window_that_are_kept() -> None:
    one = view((AGENT, -1, 0), registered=[(n % 2, 0, n) for n in range(2 * KEPT + 6)])
    one.registered["latency_ns"] = np.arange(2 * KEPT + 6) * 1_000_000
    assert inference_times(one, 1) == [float(n) for n in range(7, 2 * KEPT + 6, 2)]
    late = replace(one, since=2 * KEPT / 1e9)
    assert inference_times(late, 1) == [2 * KEPT + 1.0, 2 * KEPT + 3.0, 2 * KEPT + 5.0]


def test_episodes_and_the_newest_against_its_window() -> None:
    rows = np.zeros(12, ROW)
    rows["reward"] = [1, 1, 0, 2, 0, 0, 0, 4, 0, 9, 9, 9]
    rows["flags"][[2, 4, 8]] = 1
    assert finished(rows) == [(2.0, 3), (2.0, 2), (4.0, 4)]
    assert against_window(rows, 4) == (4 / 2.5, 2.0)
    assert against_window(rows[:4], 4) == (None, None)


@pytest.mark.parametrize(
    ("algorithm", "tau_ms", "processes"),
    [
        ("adaptive", [83.0], 5), ("adaptive", [80.0, 86.0], 5), ("adaptive", [80.0, 101.0], 6),
        ("maximum-time", [80.0, 101.0], 6),
        ("expected-time", [80.0, 101.0], 5), ("unstaggered", [80.0], None), ("adaptive", [], None),
    ],
)
def test_recommended_processes(algorithm: str, tau_ms: list[float], processes: int | None) -> None:
    assert recommended(tau_ms, WANTED | {"algorithm": algorithm}, RATE_HZ) == processes


def test_the_trend_of_returns() -> None:
    assert set(trend([1.0] * 19).values()) == {None}
    risen = trend([float(n) for n in range(40)])
    assert risen["episodes.trend.direction"] == "rising"
    assert risen["episodes.trend.change"] == 20.0
    mixed = trend([1.0, 2.0] * 10)
    assert (mixed["episodes.trend.p_value"], mixed["episodes.trend.direction"]) == (1.0, "steady")
    one_far_off = trend([10.0] * 50 + [5.0] * 49 + [1000.0])
    assert one_far_off["episodes.trend.p_value"] == pytest.approx(2.07e-21, rel=1e-3)
    assert one_far_off["episodes.trend.direction"] == "steady"


def test_a_view_ends_where_it_is_told_to() -> None:
    one = view(*[(DEFAULT, -1, 0)] * 5)
    assert one.until(3).rows["tick"].tolist() == [0, 1, 2]
