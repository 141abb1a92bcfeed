"""The figures of a policy server."""

from __future__ import annotations

from dataclasses import replace

from rtagent.telemetry.figures.acting import Remote
from rtagent.telemetry.figures.declaration import as_json
from rtagent.telemetry.remote import in_a_line
from rtagent.telemetry.verdicts import acting
from tests.telemetry.counted_run import Run

REMOTE = {"policy": {"remote": "ws://127.0.0.1:1"}, "learning": {"processes": 0}}


def running(count: int) -> Run:
    run = Run(**REMOTE)
    run.running(inference=count)
    return run


def test_before_an_answer_nothing_is_known() -> None:
    found = running(2).reader.read()
    assert as_json(found.inference.remote) == {
        "connected": False, "round_trip_ms": None, "queue_ms": None, "compute_ms": None,
        "in_flight": 0, "dropped": 0, "hedged": 0,
    }
    assert acting(found, {"state": "running"}).headline == "No policy server answers"


def test_while_no_process_asks_the_server_nothing_is_said_of_it() -> None:
    """As before the processes have started, and while the only one is started again."""
    found = acting(running(0).reader.read(), {"state": "starting"})
    assert (found.level, found.headline) == ("none", "Not known yet")
    assert "0 of 2 processes run" in found.detail


def test_a_run_with_its_own_network_has_no_figures_of_a_server() -> None:
    assert "remote" not in Run().reader.collect()["inference"]


def test_times_are_means_of_running_processes_and_counts_are_of_all() -> None:
    run = running(2)
    for index, (network, compute) in enumerate([(50, 80), (70, 90), (900, 900)]):
        record = run.metrics.inference[index]
        record.round_trip_ns, record.compute_ns = network * 1_000_000, compute * 1_000_000
        record.connected, record.in_flight, record.dropped = 1, 1, index
        record.hedged = 2 * index
    found = run.reader.read().inference.remote
    assert found == Remote(True, 60.0, 0.0, 85.0, 2, 3, 6)
    assert in_a_line(found) == "connected, 60.0 ms on the network, 85.0 ms computing, 2 in flight"
    assert "1.5 ms in its queue" in in_a_line(replace(found, queue_ms=1.5))
    assert in_a_line(replace(found, connected=False)) == "no policy server answers"
    assert in_a_line(replace(found, round_trip_ms=None)) == "connected"
    assert in_a_line(replace(found, compute_ms=None)) == "connected"
    # Of a lost link no time is known.
    run.metrics.inference[0].connected = 0
    found = run.reader.read().inference.remote
    assert (found.connected, found.round_trip_ms, found.compute_ms) == (True, 70.0, 90.0)
    # One that is connected again has no time before its first answer.
    again = run.metrics.inference[0]
    again.connected, again.round_trip_ns = 1, 0
    for compute_ns, means in ((0, (70.0, 90.0)), (80_000_000, (35.0, 85.0))):
        again.compute_ns = compute_ns
        found = run.reader.read().inference.remote
        assert (found.round_trip_ms, found.compute_ms) == means
    again.connected = run.metrics.inference[1].connected = 0
    found = run.reader.read().inference.remote
    assert (found.connected, found.round_trip_ms, found.queue_ms) == (False, None, None)
