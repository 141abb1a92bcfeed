"""One supervised process, with a process object that dies when the test says so."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from rtagent.child import ERROR_LINES, KILL_AFTER_S, TERM_AFTER_S, Child, State
from rtagent.restart import MOST_RESTARTS, WINDOW_S


class FakeProcess:
    """Not a process: a pid and an exit code."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.exitcode: int | None = None
        self.joined = self.closed = False

    def join(self) -> None:
        self.joined = True

    def close(self) -> None:
        """Gives its descriptors back, and must come after `join`."""
        self.closed = self.joined


class Stage:
    """A child and everything that was done to it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, role: str = "inference") -> None:
        self.processes: list[FakeProcess] = []
        self.signals: list[tuple[int, int]] = []
        self.theirs: list[Any] = []
        monkeypatch.setattr(os, "kill", lambda pid, number: self.signals.append((pid, number)))
        self.child = Child(role, 1, self._start)

    def _start(self, theirs: Any) -> FakeProcess:
        self.theirs.append(theirs)
        assert not theirs.closed
        self.processes.append(FakeProcess(1000 + len(self.processes)))
        return self.processes[-1]

    def die(self, code: int, now: float) -> None:
        self.processes[-1].exitcode = code
        self.child.reap(now, jitter=1.0)


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(monkeypatch)


def test_life_of_a_process(stage: Stage) -> None:
    child = stage.child
    assert (child.state, child.pid, child.alive) == (State.STOPPED, None, False)
    child.start(10.0)
    assert (child.state, child.pid, child.alive, child.since) == (State.STARTING, 1000, True, 10.0)
    # Only the child holds the other end: its death closes the pipe.
    assert stage.theirs[0].closed
    child.mark_ready(11.0)
    assert (child.state, child.since) == (State.RUNNING, 11.0)
    child.stop(12.0)
    assert (child.state, child.alive, child.pid) == (State.STOPPING, True, 1000)
    stage.die(0, 12.5)
    assert (child.state, child.pid, child.alive, child.restarts) == (State.STOPPED, None, False, 0)
    assert child.last_error is None
    assert stage.processes[0].closed
    assert child.voice.closed
    # There is nobody left to signal.
    child.signal(signal.SIGKILL)
    assert stage.signals == []


@pytest.mark.parametrize(
    ("code", "text"),
    [(-9, "killed by SIGKILL"), (-11, "killed by SIGSEGV"), (1, "left with code 1"),
     (0, "left with code 0"), (-40, "killed by signal 40")],
)
def test_death_is_named_and_mended(stage: Stage, code: int, text: str) -> None:
    child = stage.child
    child.start(0.0)
    child.mark_ready(1.0)
    stage.die(code, 5.0)
    assert (child.state, child.pid, child.last_error) == (State.BACKOFF, None, text)
    assert not child.start_if_due(5.0)
    assert child.start_if_due(5.05)
    assert (child.state, child.pid, child.restarts) == (State.STARTING, 1001, 1)
    assert child.last_error == text
    assert not child.start_if_due(100.0)


def test_what_it_said_comes_first(stage: Stage) -> None:
    child = stage.child
    child.start(0.0)
    lines = [f"line {number}" for number in range(ERROR_LINES + 5)]
    child.note_error("\n".join(lines) + "\n\n", boot=False)
    stage.die(1, 1.0)
    # Where it began, and where it ended.
    assert child.last_error == "\n".join([lines[0], "  ...", *lines[5:]])
    child.start_if_due(2.0)
    # The next life has its own last words.
    stage.die(-9, 3.0)
    assert child.last_error == "killed by SIGKILL"


def test_user_error_is_not_mended_by_a_restart(stage: Stage) -> None:
    child = stage.child
    child.start(0.0)
    child.note_error("no such environment", boot=True)
    stage.die(2, 1.0)
    assert (child.state, child.boot_error) == (State.FAILED, True)
    assert child.last_error == "no such environment"
    assert not child.start_if_due(1e6)


def test_user_error_of_a_process_that_has_run_is_no_boot_failure(stage: Stage) -> None:
    child = stage.child
    child.start(0.0)
    child.mark_ready(0.5)
    child.note_error("the track was unplugged", boot=True)
    stage.die(2, 1.0)
    assert (child.state, child.boot_error) == (State.BACKOFF, False)
    assert child.last_error == "the track was unplugged"


def test_given_up_after_too_many_deaths(stage: Stage) -> None:
    child = stage.child
    child.start(0.0)
    now = 0.0
    while child.state is not State.FAILED:
        stage.die(1, now)
        now += 6.0
        child.start_if_due(now)
        assert now < WINDOW_S
    assert child.restarts == MOST_RESTARTS
    assert (child.pid, child.alive) == (None, False)
    child.stop(now)
    assert child.state is State.FAILED


def test_hung_process_is_killed_and_started_again(stage: Stage) -> None:
    child = stage.child
    child.start(0.0)
    child.mark_ready(0.1)
    child.kill("no heartbeat for 2 s")
    assert stage.signals == [(1000, signal.SIGKILL)]
    stage.die(-9, 3.0)
    assert (child.state, child.last_error) == (State.BACKOFF, "no heartbeat for 2 s")


def test_first_asked_then_told_then_killed(stage: Stage) -> None:
    child = stage.child
    child.start(0.0)
    child.enforce_stop(100.0)
    assert stage.signals == []
    child.stop(100.0)
    for now in (100.0, 100.0 + TERM_AFTER_S, 100.1 + TERM_AFTER_S, 100.1 + KILL_AFTER_S):
        child.enforce_stop(now)
        # Asking again does not grant more time.
        child.stop(now)
    assert stage.signals == [(1000, signal.SIGTERM), (1000, signal.SIGKILL)]


def test_stop_in_backoff_needs_no_death(stage: Stage) -> None:
    child = stage.child
    child.start(0.0)
    stage.die(1, 1.0)
    child.stop(1.0)
    assert child.state is State.STOPPED
    assert not child.start_if_due(100.0)


def test_dead_process_is_sent_no_signal(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = stage.child
    child.signal(signal.SIGTERM)
    child.start(0.0)
    stage.processes[0].exitcode = 0
    child.signal(signal.SIGTERM)
    assert stage.signals == []

    def gone(pid: int, number: int) -> None:
        raise ProcessLookupError

    stage.processes[0].exitcode = None
    monkeypatch.setattr(os, "kill", gone)
    child.signal(signal.SIGTERM)


def test_ready_counts_only_while_starting(stage: Stage) -> None:
    child = stage.child
    child.start(0.0)
    child.stop(1.0)
    child.mark_ready(2.0)
    assert child.state is State.STOPPING


@pytest.mark.parametrize(
    ("role", "name"),
    [("inference", "inference 1"), ("learner", "learner 1"), ("environment", "environment"),
     ("service", "service")],
)
def test_description(monkeypatch: pytest.MonkeyPatch, role: str, name: str) -> None:
    stage = Stage(monkeypatch, role)
    stage.child.start(0.0)
    assert stage.child.describe() == {
        "name": name, "role": role, "index": 1, "pid": 1000, "state": "starting", "restarts": 0,
        "last_error": None,
    }
