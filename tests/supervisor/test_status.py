"""The report: events with their times, in the status and on disk, and reports of lost ones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from rtagent.clock import VirtualClock
from rtagent.config import Config
from rtagent.memory.double_buffer import JsonDoubleBuffer
from rtagent.supervisor.child import Child, State
from rtagent.supervisor.status import EVENTS_SHOWN, Report
from rtagent.telemetry.event_log import read_events
from tests.conftest import private

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
CAPACITY = 256 << 10


@pytest.fixture
def cell() -> JsonDoubleBuffer:
    return private(JsonDoubleBuffer, CAPACITY)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(500.0)


@pytest.fixture
def report(clock: VirtualClock) -> Report:
    return Report("abc", clock)


def written(report: Report, cell: JsonDoubleBuffer) -> dict[str, Any]:
    report.write(cell, [], Config(), "running")
    return cell.read()


def test_events_are_numbered_and_timed_by_the_monotonic_clock(
    cell: JsonDoubleBuffer, clock: VirtualClock
) -> None:
    times = iter([NOON, NOON + timedelta(hours=1)])
    report = Report("abc", clock, time_of_day=lambda: next(times))
    clock.advance(2.5)
    report.event("slip", source="environment", slips=1)
    clock.advance(1.0)
    report.event("pressure")
    status = written(report, cell)
    assert status["started_s"] == 500.0
    newest, oldest = status["events"]
    assert oldest == {
        "id": 1, "at": "2030-01-01T12:00:02.500+00:00", "uptime_s": 2.5, "kind": "slip",
        "source": "environment", "slips": 1,
    }
    assert (newest["id"], newest["source"]) == (2, None)
    assert newest["at"] == "2030-01-01T12:00:03.500+00:00"


def test_messages_of_children_are_logged_as_one_line_without_control_characters(
    report: Report, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "rtagent")
    report.event("died", source="inference 0", error="no\x1b[2J\r\ngo\x9b")
    report.close()
    # Reports of other tests may still be logging.
    assert 'died source="inference 0" error="no\\u001b[2J\\r\\ngo "' in caplog.messages


def test_the_log_says_how_bad_it_is(report: Report, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "rtagent")
    for kind in ("started", "died", "failed"):
        report.event(kind, source="the test")
    report.close()
    own = [each for each in caplog.records if 'source="the test"' in each.getMessage()]
    assert [record.levelname for record in own] == ["INFO", "WARNING", "ERROR"]


def test_the_status_holds_the_newest_events(cell: JsonDoubleBuffer, report: Report) -> None:
    for _ in range(EVENTS_SHOWN + 7):
        report.event("slip")
    numbers = [event["id"] for event in written(report, cell)["events"]]
    assert numbers == list(range(EVENTS_SHOWN + 7, 7, -1))


def test_all_events_reach_the_disk(
    cell: JsonDoubleBuffer, clock: VirtualClock, tmp_path: Path
) -> None:
    path = tmp_path / "run" / "events.jsonl"
    report = Report("abc", clock, events=path, time_of_day=lambda: NOON)
    for number in range(EVENTS_SHOWN * 2):
        report.event("slip", source="environment", slips=number)
    report.close()
    kept = read_events(path, limit=1000)
    assert [event["slips"] for event in kept] == list(range(EVENTS_SHOWN * 2))[::-1]
    assert kept[: EVENTS_SHOWN] == written(report, cell)["events"]


def test_it_says_once_that_events_are_lost_and_once_that_they_are_kept_again(
    cell: JsonDoubleBuffer, report: Report
) -> None:
    report._note_loss("the disk is full")
    kinds = [(event["kind"], event["reason"]) for event in written(report, cell)["events"]]
    assert kinds == [("events_not_kept", "the disk is full")]
    assert len(written(report, cell)["events"]) == 1
    report._note_loss(None)
    assert [event["kind"] for event in written(report, cell)["events"]] == [
        "events_kept_again", "events_not_kept",
    ]


def test_what_changes_while_it_is_told_is_told_as_it_was_at_one_moment(
    cell: JsonDoubleBuffer, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It said that events are kept again, which had not been lost before."""
    report, lost = Report("abc", clock), iter(["the disk is full", None, None])
    monkeypatch.setattr(Report, "_lost", property(lambda _: next(lost)), raising=False)
    (event,) = written(report, cell)["events"]
    assert (event["kind"], event["reason"]) == ("events_not_kept", "the disk is full")


def dead(index: int, error: str) -> Child:
    """An inference process that has died of an error."""
    child = Child("inference", index, lambda pipe: None, state=State.BACKOFF)
    child.note_error(error, boot=False)
    child.last_error = child.reported_error
    return child


@pytest.mark.parametrize("length", [100, 10_000])
def test_two_hundred_tracebacks_and_fifty_long_events_are_shortened(
    cell: JsonDoubleBuffer, report: Report, length: int
) -> None:
    for _ in range(EVENTS_SHOWN):
        report.event("world", source="environment", news="x" * 110 * length)
    line = "  File 'somewhere', line 1, in forward\n    return self.layers(x)\n"
    error = f"Traceback (most recent call last):\n{line * 15}ValueError: {'y' * length}"
    report.write(cell, [dead(index, error) for index in range(256)], Config(), "degraded")
    status = cell.read()
    assert status["shortened"]
    assert len(status["roles"]) == 256
    assert len(status["events"]) == EVENTS_SHOWN
    assert all(role["last_error"].startswith("Traceback") for role in status["roles"])
    assert all(event["news"].startswith("xxx") for event in status["events"])
    assert [event["id"] for event in status["events"]] == list(range(EVENTS_SHOWN, 0, -1))
    report.write(cell, [dead(0, error)], Config(), "degraded")
    assert not cell.read()["shortened"], "what fits is shown whole"


def test_a_status_that_cannot_be_shortened_enough_is_written_without_its_lists(
    report: Report
) -> None:
    small = private(JsonDoubleBuffer, 20_000)
    report.write(small, [dead(index, "x") for index in range(256)], Config(), "degraded")
    status = small.read()
    assert (status["state"], status["roles"], status["shortened"]) == ("degraded", [], True)


def test_details_cannot_replace_the_keys_of_an_event(
    cell: JsonDoubleBuffer, report: Report
) -> None:
    report.event("odd", source="me", **{"id": -5, "at": 3, "uptime_s": "x", "object": object()})
    (event,) = written(report, cell)["events"]
    assert (event["id"], event["uptime_s"], event["source"]) == (1, 0.0, "me")


def test_events_after_a_sleep_of_the_machine_have_the_right_time_of_day(
    cell: JsonDoubleBuffer, clock: VirtualClock
) -> None:
    # It had slept before the run, too.
    slept = [100.0]
    report = Report("run", clock, time_of_day=lambda: NOON, suspended=lambda: slept[0])
    slept[0] += 3600.0
    clock.advance(2.0)
    report.event("woken")
    (event,) = written(report, cell)["events"]
    assert event["uptime_s"] == 2.0
    assert datetime.fromisoformat(event["at"]) == NOON + timedelta(hours=1, seconds=2)
