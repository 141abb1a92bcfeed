"""The report: events with their times, in the status and on disk, and what is lost is said."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from rtagent.clock import VirtualClock
from rtagent.config import Config
from rtagent.event_log import read_events
from rtagent.memory.cells import JsonCell
from rtagent.report import EVENTS_SHOWN, Report

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
CAPACITY = 256 << 10


@pytest.fixture
def cell() -> JsonCell:
    return JsonCell(memoryview(bytearray(JsonCell.size(CAPACITY))), CAPACITY)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(500.0)


def written(report: Report, cell: JsonCell) -> dict[str, Any]:
    report.write(cell, [], Config(), "running")
    return cell.read()


def test_events_are_numbered_and_timed_by_the_monotonic_clock(
    cell: JsonCell, clock: VirtualClock
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


def test_the_status_holds_the_newest_events(cell: JsonCell, clock: VirtualClock) -> None:
    report = Report("abc", clock)
    for _ in range(EVENTS_SHOWN + 7):
        report.event("slip")
    numbers = [event["id"] for event in written(report, cell)["events"]]
    assert numbers == list(range(EVENTS_SHOWN + 7, 7, -1))


def test_all_events_reach_the_disk(cell: JsonCell, clock: VirtualClock, tmp_path: Path) -> None:
    path = tmp_path / "run" / "events.sqlite"
    report = Report("abc", clock, events=path, time_of_day=lambda: NOON)
    for number in range(EVENTS_SHOWN * 2):
        report.event("slip", source="environment", slips=number)
    report.close()
    kept = read_events(path, limit=1000)
    assert [event["slips"] for event in kept] == list(range(EVENTS_SHOWN * 2))[::-1]
    assert kept[: EVENTS_SHOWN] == written(report, cell)["events"]


def test_it_says_once_that_events_are_lost_and_once_that_they_are_kept_again(
    cell: JsonCell, clock: VirtualClock
) -> None:
    report = Report("abc", clock)
    report._note_loss("the disk is full")
    kinds = [(event["kind"], event["reason"]) for event in written(report, cell)["events"]]
    assert kinds == [("events_not_kept", "the disk is full")]
    assert len(written(report, cell)["events"]) == 1
    report._note_loss(None)
    assert [event["kind"] for event in written(report, cell)["events"]] == [
        "events_kept_again", "events_not_kept",
    ]
