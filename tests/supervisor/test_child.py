"""One supervised process, with a process object that dies when the test says so."""

from __future__ import annotations

import errno
import os
from typing import Any
from unittest.mock import Mock

import pytest

from rtagent.logs.shortening import ERROR_LINES
from rtagent.processes.restart_policy import FIRST_PAUSE_S, LONGEST_PAUSE_S, MOST_RESTARTS, WELL_S
from rtagent.supervisor.child import KILL_AFTER_S, SUCCESSORS, TERM_AFTER_S, Child, State
from tests.conftest import open_descriptors


class FakeProcess:
    """Not a process: a pid, an exit code, and what it was asked for."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.exitcode: int | None = None
        self.failure: str | None = None
        self.joined = self.closed = False
        self.idle = True
        self.whole_tree = False
        self.asked: list[str] = []

    def terminate(self) -> None:
        self.asked.append("terminate")

    def kill(self, *, whole_tree: bool = False) -> None:
        self.asked.append("kill")
        self.whole_tree = whole_tree

    def leave_idle(self) -> None:
        self.idle = False

    def join(self, timeout: float | None = None) -> None:
        self.joined = True

    def close(self) -> None:
        """Gives its descriptors back, and must come after `join`."""
        self.closed = self.joined


class Stage:
    """A child and its processes."""

    def __init__(self, role: str = "inference") -> None:
        self.processes: list[FakeProcess] = []
        self.theirs: list[Any] = []
        self.child = Child(role, 1, self._start)

    def _start(self, theirs: Any) -> FakeProcess:
        self.theirs.append(theirs)
        assert not theirs.closed
        self.processes.append(FakeProcess(1000 + len(self.processes)))
        return self.processes[-1]

    def started(self) -> Child:
        """The child, whose first process has been started at 0."""
        self.child.start(0.0)
        return self.child

    def die(self, code: int, now: float) -> None:
        self.processes[-1].exitcode = code
        self.child.reap(now, jitter=1.0)


@pytest.fixture
def stage() -> Stage:
    return Stage()


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
    assert child.pipe.closed


S = State
EDGES = {
    S.STOPPED: {S.STARTING, S.BACKOFF},
    S.STARTING: {S.RUNNING, S.BACKOFF, S.FAILED, S.STOPPING},
    S.RUNNING: {S.BACKOFF, S.FAILED, S.STOPPING},
    S.BACKOFF: {S.STARTING, S.BACKOFF, S.FAILED, S.STOPPED},
    S.FAILED: {S.STARTING, S.FAILED, S.STOPPED},
    S.STOPPING: {S.STOPPED},
}


def test_no_state_is_missing_and_every_edge_is_explained() -> None:
    assert set(SUCCESSORS) == set(State)
    assert {state: set(edges) for state, edges in SUCCESSORS.items()} == EDGES
    assert all(why for edges in SUCCESSORS.values() for why in edges.values())


@pytest.mark.parametrize("before", State)
@pytest.mark.parametrize("after", State)
def test_only_known_edges_are_taken(before: State, after: State) -> None:
    child = Child("inference", 1, lambda pipe: None, state=before)
    if after in EDGES[before]:
        child._enter(after, 5.0)
        assert (child.state, child.since) == (after, 5.0)
    else:
        with pytest.raises(RuntimeError, match=rf"cannot become {after}: it is {before}"):
            child._enter(after, 5.0)
        assert (child.state, child.since) == (before, 0.0)


@pytest.mark.parametrize(("code", "text"), [
    (-9, "killed by SIGKILL"), (-11, "killed by SIGSEGV"), (1, "left with code 1"),
    (0, "left with code 0"), (-40, "killed by signal 40"),
])
def test_a_death_is_described_and_followed_by_a_restart(stage: Stage, code: int, text: str) -> None:
    child = stage.started()
    child.mark_ready(1.0)
    stage.die(code, 5.0)
    assert (child.state, child.pid, child.last_error) == (State.BACKOFF, None, text)
    assert not child.start_if_due(5.0)
    assert child.start_if_due(5.0 + FIRST_PAUSE_S)
    assert (child.state, child.pid, child.restarts) == (State.STARTING, 1001, 1)
    assert child.last_error == text
    assert not child.start_if_due(100.0)


def test_the_error_that_it_reported_comes_before_the_exit_code(stage: Stage) -> None:
    child = stage.started()
    lines = [f"line {number}" for number in range(ERROR_LINES + 5)]
    child.note_error("\n".join(lines) + "\n\n", boot=False)
    stage.die(1, 1.0)
    # Where it began, and where it ended.
    assert child.last_error == "\n".join([lines[0], "  ...", *lines[5:]])
    child.start_if_due(2.0)
    # The next life has its own last words.
    stage.die(-9, 3.0)
    assert child.last_error == "killed by SIGKILL"


@pytest.mark.parametrize("has_run", [False, True])
def test_a_user_error_is_final_unless_the_process_has_run(stage: Stage, has_run: bool) -> None:
    child = stage.started()
    if has_run:
        child.mark_ready(0.5)
    child.note_error("no such environment", boot=True)
    stage.die(2, 1.0)
    assert child.state is (State.BACKOFF if has_run else State.FAILED)
    assert child.boot_error is not has_run
    assert child.last_error == "no such environment"
    assert child.start_if_due(1e9) is has_run


def test_after_many_deaths_it_is_shown_as_failed_and_tried_for_ever(stage: Stage) -> None:
    child = stage.started()
    now = 0.0
    for _ in range(MOST_RESTARTS):
        stage.die(1, now)
        assert (child.state, child.failing) == (State.BACKOFF, False)
        now = child.start_at
        assert child.start_if_due(now)
    for _ in range(100):
        stage.die(1, now)
        assert (child.state, child.failing, child.pid) == (State.FAILED, True, None)
        assert child.start_at - now <= LONGEST_PAUSE_S + 1e-6
        assert not child.start_if_due(child.start_at - 0.01)
        now = child.start_at
        assert child.start_if_due(now)
        # It is not shown as running before it is.
        assert (child.state, child.describe()["state"]) == (State.STARTING, "failed")
    child.mark_ready(now)
    assert (child.failing, child.describe()["state"]) == (False, "running")
    stage.die(1, now + WELL_S)
    assert child.state is State.BACKOFF


@pytest.mark.parametrize("state", [State.BACKOFF, State.FAILED])
def test_a_dead_process_that_is_no_longer_wanted_is_not_restarted(
    stage: Stage, state: State
) -> None:
    child, now = stage.started(), 1.0
    stage.die(1, now)
    while child.state is not state:
        now = child.start_at
        child.start_if_due(now)
        stage.die(1, now)
    child.stop(now)
    assert (child.state, child.failing) == (State.STOPPED, False)
    assert not child.start_if_due(now + 1e6)


def test_a_process_that_does_not_leave_gets_sigterm_and_then_sigkill(stage: Stage) -> None:
    child = stage.started()
    child.enforce_stop(100.0)
    assert stage.processes[0].asked == []
    child.stop(100.0)
    for now in (100.0, 100.0 + TERM_AFTER_S, 100.1 + TERM_AFTER_S, 100.1 + KILL_AFTER_S):
        child.enforce_stop(now)
        # Asking again does not grant more time.
        child.stop(now)
    assert stage.processes[0].asked == ["terminate", "kill"]


def test_ready_counts_only_while_starting(stage: Stage) -> None:
    child = stage.started()
    child.stop(1.0)
    assert not child.mark_ready(2.0)
    assert child.state is State.STOPPING


@pytest.mark.parametrize(("role", "name"), [
    ("inference", "inference 1"), ("learner", "learner 1"), ("environment", "environment"),
    ("service", "service"),
])
def test_description(role: str, name: str) -> None:
    stage = Stage(role)
    stage.child.start(0.0)
    assert stage.child.describe() == {
        "name": name, "role": role, "index": 1, "pid": 1000, "state": "starting", "busy": None,
        "restarts": 0, "last_error": None,
    }


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.EMFILE, errno.ENOMEM])
def test_a_refused_start_is_a_failed_start_of_one_child(stage: Stage, number: int) -> None:
    def refuse(theirs: Any) -> None:
        stage.theirs.append(theirs)
        raise OSError(number, os.strerror(number))

    child = stage.child
    child.start_process = refuse
    before = open_descriptors()
    child.start(10.0)
    assert (child.state, child.pid, child.alive) == (State.BACKOFF, None, False)
    assert child.last_error == f"no process: {os.strerror(number)}"
    assert stage.theirs[0].closed
    assert open_descriptors().items() <= before.items()
    assert child.start_at > 10.0
    assert not child.start_if_due(10.0)
    child.start_process = stage._start
    assert child.start_if_due(100.0)
    assert (child.state, child.restarts) == (State.STARTING, 1)


def test_no_pipe_is_a_failed_start(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    monkeypatch.setattr("rtagent.supervisor.child.open_pipe", Mock(side_effect=refused))
    stage.child.start(10.0)
    assert stage.child.state is State.BACKOFF
    assert stage.processes == []


def test_the_fork_server_says_why_there_is_no_process(stage: Stage) -> None:
    stage.child.start(10.0)
    stage.processes[0].failure = "no process: Resource temporarily unavailable"
    stage.die(71, 10.1)
    assert stage.child.state is State.BACKOFF
    assert stage.child.last_error == "no process: Resource temporarily unavailable"
