"""The event log: on a good disk, on a bad one, and read while it is written."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from rtagent.clock import VirtualClock
from rtagent.files.append import append_whole
from rtagent.telemetry import event_log
from rtagent.telemetry.event_log import MOST_BYTES, EventLog, read_events
from tests.forked import Forked, eventually
from tests.limited import limited
from tests.refused import one_line

PATIENCE_S = 60.0


def event(number: int, kind: str = "restarted", **details: Any) -> dict[str, Any]:
    return {"id": number, "at": "2025-01-01T12:00:00.000+00:00", "uptime_s": number * 1e-3,
            "kind": kind, "source": "inference 0", **details}


def ids(events: list[dict[str, Any]]) -> list[int]:
    return [each["id"] for each in events]


class Kept:
    """A log, and what it says about its disk."""

    def __init__(self, path: Path, most_bytes: int = MOST_BYTES) -> None:
        self.path = path
        self.told: list[str | None] = []
        self.clock = VirtualClock()
        self.log = EventLog(path, self.told.append, most_bytes, retry_s=0.05, clock=self.clock)

    def put(self, *numbers: int) -> None:
        for number in numbers:
            self.log.put(event(number))

    def holds(self, *numbers: int) -> bool:
        """Whether exactly these are in the file, soon."""
        wanted = sorted(numbers, reverse=True)
        return eventually(lambda: ids(read_events(self.path, 20_000)) == wanted)


def attempts_of(log: EventLog) -> Mock:
    """Counts the attempts to write from now on."""
    log._write = attempts = Mock(wraps=log._write)  # type: ignore[method-assign]
    return attempts


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    kept = Kept(tmp_path / "runs" / "r1" / "events.jsonl")
    yield kept
    kept.log.close(PATIENCE_S)


def test_events_come_back_as_they_were(kept: Kept) -> None:
    put = [
        event(1, "set", by="http", before={"processes": 2}, after={"processes": 4}),
        event(2, error="Traceback:\n  ü [x]\n", restarts=3, list=[1, None, 2.5, True]),
        {**event(3), "source": None},
    ]
    for each in put:
        kept.log.put(each)
    assert kept.holds(1, 2, 3)
    assert read_events(kept.path, 10) == put[::-1]
    assert kept.told == []


def test_pages_and_kinds(kept: Kept) -> None:
    for number in range(1, 31):
        kept.log.put(event(number, ("set", "restarted", "failed")[number % 3]))
    assert kept.holds(*range(1, 31))
    assert ids(read_events(kept.path, 4)) == [30, 29, 28, 27]
    assert ids(read_events(kept.path, 4, before=27)) == [26, 25, 24, 23]
    assert ids(read_events(kept.path, 3, before=27, kinds=["set"])) == [24, 21, 18]
    assert ids(read_events(kept.path, 3, kinds=["set", "failed"])) == [30, 29, 27]
    assert read_events(kept.path, 3, kinds=["other"]) == []
    assert read_events(kept.path, 3, before=1) == []


def test_of_some_kinds_no_other_lines_are_parsed(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.log.put(event(1, "set", kinds=["restarted"]))
    kept.log.put(event(2, "restarted", what={"kind": "set"}))
    kept.put(*range(3, 101))
    assert kept.holds(*range(1, 101))
    parsed = Mock(wraps=event_log._parsed)
    monkeypatch.setattr(event_log, "_parsed", parsed)
    assert ids(read_events(kept.path, 10, kinds=["set"])) == [1]
    assert parsed.call_count == 2


def test_close_writes_what_waits(kept: Kept) -> None:
    kept.put(*range(1, 3001))
    kept.log.close(PATIENCE_S)
    assert [path.name for path in kept.path.parent.iterdir()] == ["events.jsonl"]
    assert len(read_events(kept.path, 20_000)) == 3000


def test_the_files_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept(tmp_path / "run" / "events.jsonl", most_bytes=4000)
    monkeypatch.setattr(event_log, "BATCH", 3)
    monkeypatch.setattr(event_log, "PAUSE_S", 0.0)
    kept.put(*range(1, 201))
    kept.log.close(PATIENCE_S)
    found = ids(read_events(kept.path, 20_000))
    assert found == list(range(200, 200 - len(found), -1))
    assert len(found) >= 15
    files = sorted(kept.path.parent.iterdir())
    assert [path.name for path in files] == ["events.jsonl", "events.jsonl.1"]
    assert all(path.stat().st_size <= 2000 for path in files)


def test_events_of_a_file_that_is_renamed_while_it_is_read_come_once(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    for each in (path, path.with_name("events.jsonl.1")):
        each.write_text("".join(json.dumps(event(number)) + "\n" for number in (1, 2, 3)))
    assert ids(read_events(path, 10)) == [3, 2, 1]


def test_an_event_that_json_cannot_hold_costs_no_other_event(kept: Kept) -> None:
    kept.put(1)
    kept.log.put(event(2, what=object()))
    circle: list[Any] = []
    circle.append(circle)
    kept.log.put(event(3, what=circle))
    kept.put(4)
    assert kept.holds(1, 4)
    assert kept.told == []


def test_the_queue_is_bounded_and_drops_the_oldest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_log, "CAPACITY", 100)
    folder = tmp_path / "run"
    folder.write_text("not a folder")
    kept = Kept(folder / "events.jsonl")
    # No attempt begins in between, which would write what is dropped meanwhile.
    with kept.log._changed:
        kept.put(*range(1, 251))
    assert eventually(lambda: kept.told)
    folder.unlink()
    assert kept.holds(*range(151, 251))
    kept.log.close(PATIENCE_S)


def test_an_event_that_is_dropped_while_it_is_written_is_in_the_file(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_log, "CAPACITY", 3)
    kept = Kept(kept.path.with_name("small.jsonl"))
    gate = Gate(monkeypatch)
    kept.put(1, 2)
    assert gate.reached.wait(PATIENCE_S)
    kept.put(3, 4, 5)
    gate.open.set()
    kept.log.close(PATIENCE_S)
    written = ids(read_events(kept.path, 10))
    assert written in ([5, 4, 3, 2, 1], [5, 4, 3, 1]), "1 or both may be in the first batch"


class Gate:
    """A disk that hangs when it is written to, until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.open = threading.Event(), threading.Event()

        def hang(path: Path, data: bytes) -> None:
            self.reached.set()
            assert self.open.wait(PATIENCE_S)
            append_whole(path, data)

        monkeypatch.setattr(event_log, "append_whole", hang)


def test_a_hanging_disk_delays_no_caller(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    kept.put(1)
    assert gate.reached.wait(PATIENCE_S)
    began = time.monotonic()
    kept.put(*range(2, 1001))
    kept.log.close(0.2)
    assert time.monotonic() - began < PATIENCE_S / 2
    assert read_events(kept.path, 10) == []
    assert kept.told == []
    gate.open.set()
    assert kept.holds(*range(1, 1001))


def test_a_hanging_disk_is_reported_once(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    kept.put(1)
    assert gate.reached.wait(PATIENCE_S)
    kept.clock.advance(9.0)
    kept.put(2)
    assert kept.told == []
    kept.clock.advance(2.0)
    kept.put(3, 4)
    assert kept.told == ["the disk has not answered for 10 s"]
    gate.open.set()
    assert kept.holds(1, 2, 3, 4)
    assert eventually(lambda: kept.told[1:] == [None])
    # What is in the file already may still count as being written for a moment.
    assert eventually(lambda: kept.log._writing_since is None)
    kept.clock.advance(60.0)
    kept.put(5)
    assert kept.holds(1, 2, 3, 4, 5)
    assert len(kept.told) == 2, "a log that has nothing to do does not hang"


def test_an_owner_that_puts_an_event_when_it_is_told_does_not_recurse(tmp_path: Path) -> None:
    numbers = itertools.count(2)
    told: list[str | None] = []

    def note(reason: str | None) -> None:
        told.append(reason)
        log.put(event(next(numbers), "events_not_kept"))

    folder = tmp_path / "run"
    folder.write_text("not a folder")
    log = EventLog(folder / "events.jsonl", note, retry_s=0.02)
    attempts = attempts_of(log)
    log.put(event(1))
    assert eventually(lambda: attempts.call_count > 3)
    assert len(told) == 1
    folder.unlink()
    assert eventually(lambda: len(told) == 2)
    log.close(PATIENCE_S)
    assert told[1] is None
    assert len(read_events(folder / "events.jsonl", 10)) == 3


@pytest.mark.parametrize("place", ["folder", "in the way", "nowhere"])
def test_a_file_that_cannot_be_written_is_reported_once(tmp_path: Path, place: str) -> None:
    path = tmp_path / "events.jsonl"
    if place == "folder":
        path.mkdir()
    elif place == "in the way":
        path.write_text("a file")
        path /= "events.jsonl"
    else:
        path = Path("/proc/self/task/events.jsonl")
    kept = Kept(path)
    kept.put(1, 2)
    assert eventually(lambda: kept.told)
    kept.put(3)
    attempts = attempts_of(kept.log)
    assert eventually(lambda: attempts.call_count > 2)
    assert len(kept.told) == 1
    assert kept.told[0]
    assert str(tmp_path) not in kept.told[0], "a reason is shown over HTTP"
    began = time.monotonic()
    kept.log.close(PATIENCE_S)
    assert time.monotonic() - began < PATIENCE_S / 2, "the last attempt was the last"


def test_a_full_disk_is_reported_and_events_are_written_once_it_has_room(
    tmp_path: Path, forked: Forked
) -> None:
    path = tmp_path / "events.jsonl"

    def fill() -> None:
        kept = Kept(path)
        kept.put(1)
        assert kept.holds(1)
        with limited("FSIZE", 20_000):
            kept.log.put(event(2, error="x" * 50_000))
            assert eventually(lambda: kept.told)
            kept.put(3, 4)
            attempts = attempts_of(kept.log)
            assert eventually(lambda: attempts.call_count > 2)
            assert len(kept.told) == 1
            assert kept.told[0]
        assert kept.holds(1, 2, 3, 4)
        assert eventually(lambda: kept.told[1:] == [None])
        kept.log.close(PATIENCE_S)

    assert forked.run(fill) == 0


def test_a_folder_that_is_removed_is_made_again(kept: Kept) -> None:
    kept.put(1)
    assert kept.holds(1)
    for path in kept.path.parent.iterdir():
        path.unlink()
    kept.path.parent.rmdir()
    kept.put(2)
    assert kept.holds(2)
    assert kept.told == []


def test_another_process_reads_while_it_is_written(kept: Kept, forked: Forked) -> None:
    def read() -> None:
        seen = 0
        while seen < 3000:
            found = ids(read_events(kept.path, 20_000))
            assert found == list(range(len(found), 0, -1))
            assert len(found) >= seen
            seen = len(found)

    reader = forked.start(read)
    for number in range(1, 3001):
        kept.put(number)
        if number % 30 == 0:
            time.sleep(0.005)
    assert forked.wait(reader) == 0
    assert kept.told == []


def test_the_events_of_a_killed_writer_can_be_read(tmp_path: Path, forked: Forked) -> None:
    path = tmp_path / "events.jsonl"

    def write() -> None:
        kept = Kept(path)
        for number in itertools.count(1):
            kept.put(number)
            time.sleep(0.0005)

    writer = forked.start(write)
    assert eventually(lambda: len(read_events(path, 20_000)) > 100)
    forked.kill(writer)
    found = ids(read_events(path, 20_000))
    assert len(found) > 100
    assert found == list(range(len(found), 0, -1))


def test_without_a_file_there_are_no_events(tmp_path: Path) -> None:
    assert read_events(tmp_path / "absent" / "events.jsonl", 10) == []
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    assert read_events(empty, 10) == []


@pytest.mark.parametrize("damage", [
    b'{"id": 6, "at": "2025-', b"not JSON\n\n", b'{"id": 6}\n[1]\n7\n', b"\0" * 9000, b"\xff\n",
    b"[" * 100_000, b'{"id":"6","at":"","uptime_s":0,"kind":"a","source":""}\n',
])
def test_damaged_lines_are_skipped(kept: Kept, damage: bytes) -> None:
    kept.put(*range(1, 6))
    kept.log.close(PATIENCE_S)
    whole = kept.path.read_bytes()
    kept.path.write_bytes(whole + damage)
    assert ids(read_events(kept.path, 10)) == [5, 4, 3, 2, 1]
    assert ids(read_events(kept.path, 2, before=4)) == [3, 2]
    first, _, later = whole.partition(b"\n")
    kept.path.write_bytes(first + b"\n" + damage + b"\n" + later)
    assert ids(read_events(kept.path, 10)) == [5, 4, 3, 2, 1]


def test_a_folder_in_place_of_the_file_is_an_error_of_one_line(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.mkdir()
    with one_line(r"cannot read the events in .*jsonl: \w"):
        read_events(path, 1000)
