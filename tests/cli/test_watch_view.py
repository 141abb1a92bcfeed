"""The live view as a picture: what it says, not where."""

from __future__ import annotations

import copy
import io
import re
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from rtagent.cli.output import UNKNOWN
from rtagent.cli.watch_view import Frame, Snapshot, bar, frame_lines, sparkline, verdict
from rtagent.telemetry.figures.declaration import as_json, from_json
from rtagent.telemetry.figures.document import Answer
from rtagent.telemetry.verdicts import verdicts
from tests.service.conftest import FakeBackend, example_stats, example_timeline, role

EVENT = {"id": 3, "at": "2025-01-01T12:00:31.250+00:00", "uptime_s": 31.2, "kind": "restarted",
         "source": "inference 1", "reason": "killed\x1b[31m by SIGKILL"}


def snapshot(**changes: Any) -> Snapshot:
    backend = FakeBackend()
    return replace(
        Snapshot(
            url="http://127.0.0.1:8008/", status=backend.report,
            stats=judged(example_stats(), backend.report), inference=backend.inference(),
            timeline=example_timeline(), events=[EVENT], returns=[1.0, 2.0, 4.0],
        ),
        **changes,
    )


def judged(stats: dict[str, Any], status: dict[str, Any]) -> dict[str, Any]:
    """Figures as the daemon answers them."""
    return {**stats, "verdicts": as_json(verdicts(from_json(Answer, stats), status))}


def changed(path: str, value: Any, **changes: Any) -> Snapshot:
    """The figures with another value of one of them."""
    stats = copy.deepcopy(example_stats())
    *sections, key = path.split(".")
    place: Any = stats
    for section in sections:
        place = place[section]
    place[key] = value
    return snapshot(stats=judged(stats, FakeBackend().report), **changes)


def text(shown: Snapshot, width: int = 120, lost: str = "") -> str:
    lines = frame_lines(shown, lost or None, width, None)
    return "\n".join(line.plain.rstrip() for line in lines)


def drawn(shown: Snapshot, width: int, height: int) -> list[str]:
    """The text that a terminal of this size gets."""
    out = io.StringIO()
    console = Console(file=out, width=width, height=height, force_terminal=True,
                      color_system=None, highlight=False)
    console.print(Frame(shown), height=height)
    return out.getvalue().splitlines()


def test_the_main_figures() -> None:
    shown = text(snapshot())
    for part in (
        "rtagent 20250101-abcd", "running", "up 5 min 1 s",
        "In time: acting on 99.8 % of ticks: Inaction 0.2 % in the last minute",
        "59.727 of 59.727 Hz, late p99 95 us, slips 0, drift 0.1 ms",
        "every 16.8 ms, delay 5.2 ticks (p99 6), default 80, re-used 120, interaction CV 0.06",
        "2 of 2 run, 82.0 ms each, recommended 5, adaptive",
        "4,100 updates, 41.3 per second, loss 0.0123, epsilon 0.310",
        "18% of 100,000 ticks",
        "37, last 4.00, mean of 100: 2.37, ▁▃█",
        "newest events (time in UTC)",
        "01-01 12:00:31  restarted  inference 1  reason: killed [31m by SIGKILL",
    ):
        assert part in shown
    for absent in ("R3", "memory", "PAUSED", "injected", "cluster", "\nserver", "\x1b", "more"):
        assert absent not in shown


def test_a_lane_for_each_process() -> None:
    lines = text(snapshot()).splitlines()
    lanes = [line for line in lines if line.startswith("inference ") and "●" in line]
    assert len(lanes) == 2
    assert "running" in lanes[0]
    assert "81.9" in lanes[0]
    assert "84.2" in lanes[0]
    assert any(line.startswith("process") and "·" in line and "X" in line for line in lines)


def test_short_inference_times_are_not_nothing() -> None:
    shown = changed("inference.estimate_ms", 0.036)
    shown.stats["inference"]["workers"][0]["latency_ms"] |= {"p50": 0.031, "p99": 0.049}
    lines = text(shown)
    assert "2 of 2 run, 0.036 ms each" in lines
    assert "  0.031   0.049  " in lines


def test_without_a_timeline_or_events_the_rest_is_there() -> None:
    shown = text(snapshot(timeline=None, events=None))
    assert "inference 1" in shown
    assert "●" not in shown
    assert "newest events" not in shown


@pytest.mark.parametrize(("inaction", "headline", "style"), [
    (0.0, "In time: acting on 100.0 % of ticks", "green"),
    (0.05, "Often late: acting on 95.0 % of ticks", "yellow"),
    (0.8, "Too late: acting on 20.0 % of ticks", "red"),
    (None, "Not known yet", "yellow"),
])
def test_the_verdict_is_the_daemons(inaction: float | None, headline: str, style: str) -> None:
    shown = changed("actions.inaction_fraction_window", inaction)
    found = verdict(from_json(Answer, shown.stats))
    assert (found[0], found[2]) == (headline, style)


def test_nothing_known_is_called_unknown() -> None:
    empty = Snapshot("http://127.0.0.1:8008/", {}, {}, {})
    shown = text(empty)
    assert shown.count(UNKNOWN) > 20
    assert "None" not in shown
    assert "0.00%" not in shown


def test_deadlines_memory_and_pause() -> None:
    stats = example_stats()
    stats["r3"] |= {"mode": "step", "deadline_s": 86400.25, "time_ratio": 0.5, "data_ratio": 1.25,
                    "data_budget": 100_000, "horizons": {"met": 3, "missed": None},
                    "used_bytes": 450 << 20, "memory_budget_bytes": 900 << 20}
    stats["learning"]["paused"] = True
    shown = text(snapshot(stats=stats))
    assert "50% of 86400.25 s, 3 met, unknown missed, step" in shown
    assert "125% of 100,000 samples" in shown
    assert "50% of 900 MiB" in shown
    assert "PAUSED" in shown


@pytest.mark.parametrize(("path", "figures", "said"), [
    ("cluster", {"connected": True, "since_s": 12.3, "batches_in_flight": 3,
                 "emulated": {"rtt_ms": 200.0, "bandwidth_mbps": None, "loss": 0.0}},
     "cluster    connected for 12 s, 3 batches in flight (emulated: 200 ms round trip)"),
    ("inference.remote", {"connected": True, "round_trip_ms": 60.4, "queue_ms": 1.2,
                          "compute_ms": 80.3, "in_flight": 9, "dropped": 0, "hedged": 0},
     "server     connected, 60.4 ms on the network, 1.2 ms in its queue, 80.3 ms computing, "
     "9 in flight"),
])
def test_a_cluster_and_a_policy_server_where_they_are(
    path: str, figures: dict[str, Any], said: str
) -> None:
    assert f"\n{said}\n" in text(changed(path, figures))


def test_an_automatic_number() -> None:
    shown = text(snapshot(inference={"processes": "auto", "action_deadline_ms": None}))
    assert "2 of auto (2) run" in shown


def test_processes_that_are_not_well() -> None:
    stats = example_stats()
    stats["inference"]["workers"][1] |= {"state": "restarting", "restarts": 4}
    roles = [role("environment", 0), role("service", 0, busy="resetting"),
             role("learner", 0, state="failed", last_error="Traceback\nValueError: no\n")]
    report = FakeBackend().report | {"state": "degraded", "roles": roles}
    shown = text(snapshot(stats=stats, status=report))
    assert "degraded" in shown
    assert re.search(r"inference 1 +restarting +81.9 +84.2 +4 ", shown)
    assert "learner 0     failed  ValueError: no" in shown
    assert "\nenvironment" not in shown
    assert "\nservice       resetting" in shown


def test_a_lost_connection_stands_instead_of_the_verdict() -> None:
    shown = text(snapshot(), lost="no daemon answers")
    assert "CONNECTION LOST: no daemon answers (trying again)" in shown
    assert "In time" not in shown
    assert "as it was last seen" in shown


@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 10), (20, 5), (200, 60), (80, 1)])
@pytest.mark.parametrize("processes", [0, 1, 40])
def test_every_size_fits(width: int, height: int, processes: int) -> None:
    stats = example_stats()
    worker = stats["inference"]["workers"][0]
    stats["inference"]["workers"] = [{**worker, "id": i} for i in range(processes)]
    lines = drawn(snapshot(stats=stats, events=[EVENT] * 8), width, height)
    assert len(lines) <= height
    assert all(len(line) <= width for line in lines)
    assert lines[0].startswith("rtagent")
    if height >= 24:
        assert any("newest events" in line for line in lines)
        if processes == 40 and height == 24:
            shown = sum(line.startswith("inference ") and line[10:12] != "  " for line in lines)
            assert any(f"... and {40 - shown + 1} more" in line for line in lines), lines


def test_a_narrow_terminal_gets_whole_figures() -> None:
    shown = text(changed("inference.injected_latency_ms", 82.0), width=54)
    assert "2 of 2 run, 82.0 ms each (82 ms injected)\n" in shown
    assert "every 16.8 ms, delay 5.2 ticks (p99 6)" in shown


def test_a_terminal_without_unicode() -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    Console(file=out, width=120, highlight=False).print(Frame(snapshot()))
    out.flush()
    assert b"In time" in out.buffer.getvalue()  # type: ignore[attr-defined]


def test_bars_and_sparklines() -> None:
    assert bar(0.5, 4) == "██░░  50%"
    assert bar(3.0, 4) == "████ 300%"
    assert bar(None) == UNKNOWN
    assert sparkline([1.0, 1.0], 10) == "▁▁"
    assert sparkline([9.0, 0.0, 7.0], 2) == "▁█"
    assert sparkline([], 10) == ""
