"""Saving and restoring, as the supervisor sees it: a stop, a refusal, a death."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from rtagent.clock import MonotonicClock, VirtualClock
from rtagent.errors import UserError
from rtagent.processes import launch
from rtagent.processes.launch import ForkServer
from rtagent.processes.pipe import Pipe
from rtagent.supervisor.replay_keeping import LEAVE_LIMIT_S, POLL_S, SILENT_S, ReplayKeeping
from tests.conftest import eventually, open_descriptors
from tests.refused import one_line
from tests.spawned import hang


class Report:
    """Remembers events."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    def event(self, kind: str, source: str, **details: Any) -> None:
        self.events.append((kind, details))


@pytest.fixture
def keeping(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ReplayKeeping]:
    monkeypatch.setattr(launch, "PRELOAD", "json")
    for body in ("restore_replay", "save_replay"):
        monkeypatch.setattr(f"rtagent.supervisor.replay_keeping.{body}", hang)
    with ForkServer() as server:
        yield ReplayKeeping(
            tmp_path, Report(), MonotonicClock(), server,  # type: ignore[arg-type]
        )


SAVED: Any = object()
HANDLES: Any = None


@pytest.mark.process
def test_a_restore_ends_when_the_run_is_to_stop(keeping: ReplayKeeping) -> None:
    looks = iter([False, True])
    keeping.fill(SAVED, HANDLES, 10, lambda: next(looks))
    assert not keeping.busy
    assert keeping.outcome == {"failed": "given up"}


@pytest.mark.process
def test_a_save_whose_process_dies_has_failed(keeping: ReplayKeeping) -> None:
    keeping.start_save(HANDLES)
    eventually(lambda: keeping._process.pid, "it is there")
    os.kill(keeping._process.pid, 9)
    eventually(keeping.poll, "that is noticed")
    assert keeping.outcome == {"failed": "its process ended with code -9"}


@pytest.mark.process
def test_a_refused_process_is_a_failed_save(
    keeping: ReplayKeeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    monkeypatch.setattr(keeping._fork_server, "spawn", Mock(side_effect=refused))
    before = open_descriptors()
    keeping.start_save(HANDLES)
    assert keeping.poll()
    assert open_descriptors().items() <= before.items()
    assert keeping.outcome == {"failed": "no process: Resource temporarily unavailable"}
    (told,) = keeping._report.events  # type: ignore[attr-defined]
    assert told == ("replay_failed", {"reason": "no process: Resource temporarily unavailable"})
    with pytest.raises(UserError, match="cannot be restored: no process"):
        keeping.fill(SAVED, HANDLES, 10, lambda: False)


class Process:
    """A saver that ends when the test says so, and remembers what it was asked for; repetitions
    count once."""

    def __init__(self) -> None:
        self.exitcode: int | None = None
        self.failure: str | None = None
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: self.asked.append(name) if self.asked[-1:] != [name] else None


class Stage:
    """A save whose process and clock are the test's."""

    def __init__(self, folder: Path) -> None:
        self.clock, self.report, self.process = VirtualClock(100.0), Report(), Process()
        self.keeping = ReplayKeeping(
            folder, self.report, self.clock, self,  # type: ignore[arg-type]
        )
        self.said_at_once: list[Any] = []
        self.keeping.start_save(HANDLES)

    def spawn(self, body: Any, handles: Any, folder: Path, pipe: Pipe, *further: Any) -> Process:
        """Does what the fork server's method does."""
        self.pipe = Pipe(pipe._end.dup())
        for message in self.said_at_once:
            self.pipe.send(message)
        return self.process

    def after(self, seconds: float) -> list[str]:
        """Everything that was asked of the process, after some more time."""
        until = self.clock.now() + seconds
        while self.clock.now() < until:
            self.clock.sleep_until(min(until, self.clock.now() + 0.1))
            self.keeping.poll()
        return self.process.asked


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_a_saver_that_reported_its_outcome_and_does_not_leave_is_killed(stage: Stage) -> None:
    stage.pipe.send(["saved", {"ticks": 5}])
    stage.pipe.close()
    assert stage.after(0.1) == []
    assert stage.keeping.busy
    assert stage.after(LEAVE_LIMIT_S + 0.1) == ["kill"]
    # A process that hangs in the kernel is left alone.
    assert stage.after(LEAVE_LIMIT_S) == ["kill", "close"]
    assert not stage.keeping.busy
    assert stage.keeping.outcome == {"ticks": 5}
    assert stage.report.events == [("replay", {"ticks": 5})]


def test_the_end_of_a_saver_is_waited_for_and_not_asked_for_all_the_time(stage: Stage) -> None:
    """Its memory is large and its priority idle: it may need the core that would be kept busy."""
    stage.pipe.close()
    stage.keeping.poll(POLL_S)
    assert stage.process.asked == ["leave_idle"]
    stage.keeping.poll(POLL_S)
    assert stage.process.asked == ["leave_idle", "join"]


def test_a_saver_that_not_even_sigkill_ends_is_not_said_to_have_ended(stage: Stage) -> None:
    stage.pipe.close()
    assert stage.after(5.0) == ["kill", "close"]
    assert stage.keeping.outcome == {"failed": "its process hangs in the kernel"}


@pytest.mark.parametrize("said", [["failed", "disk full"], ["nothing"]])
def test_a_replay_that_is_not_saved_is_an_event_of_its_own_kind(stage: Stage, said: Any) -> None:
    stage.pipe.send(said)
    stage.process.exitcode = 1
    stage.after(0.1)
    reason = "disk full" if said[0] == "failed" else "its process ended with code 1"
    assert stage.report.events == [("replay_failed", {"reason": reason})]
    assert stage.keeping.outcome == {"failed": reason}


@pytest.mark.parametrize(
    ("restored", "kind"),
    [({"ticks": 5}, "replay"), ({"ticks": 5, "problem": "ticks-1.chunk: cut"}, "replay_damaged")],
)
def test_what_is_left_out_of_a_restored_replay_is_an_event_of_its_own_kind(
    stage: Stage, restored: dict[str, Any], kind: str
) -> None:
    stage.process.exitcode, stage.said_at_once = 0, [["restored", restored]]
    stage.after(0.1)
    stage.report.events.clear()
    stage.keeping.fill(SAVED, HANDLES, 10, lambda: False)
    assert stage.report.events == [(kind, restored)]


def test_a_replay_that_cannot_be_restored_is_no_event(stage: Stage) -> None:
    """The run is refused for it, and with its first event it would have a folder."""
    stage.process.exitcode, stage.said_at_once = 0, [["failed", "it has changed"]]
    stage.after(0.1)
    stage.report.events.clear()
    with one_line("cannot be restored: it has changed"):
        stage.keeping.fill(SAVED, HANDLES, 10, lambda: False)
    assert stage.report.events == []


def test_a_silent_saver_is_asked_to_leave_and_then_killed(stage: Stage) -> None:
    assert stage.after(SILENT_S - 1.0) == []
    stage.pipe.send(["progress", {"done": 0.5}])
    assert stage.after(0.1) == []
    assert stage.after(SILENT_S + 0.1) == ["terminate"]
    stage.after(LEAVE_LIMIT_S + 0.1)
    assert stage.process.asked[-1] == "kill"
    stage.process.exitcode = -9
    stage.after(0.1)
    assert stage.keeping.outcome == {"failed": "no progress for a minute"}


def test_a_pause_of_the_whole_daemon_is_no_silence(stage: Stage) -> None:
    stage.clock.advance(SILENT_S + 10.0)
    assert stage.after(SILENT_S - 0.1) == []
    assert stage.after(1.0) == ["terminate"]


@pytest.mark.parametrize("message", [3, [], ["saved"], ["saved", 5], {"saved": {}}, ["failed", {}]])
def test_a_message_of_wrong_shape_is_no_outcome(stage: Stage, message: Any) -> None:
    stage.pipe.send(message)
    assert stage.after(0.1) == []
    stage.process.exitcode = 1
    stage.after(0.1)
    assert stage.keeping.outcome == {"failed": "its process ended with code 1"}
