"""The processes of a run, without real ones: messages, deaths, restarts."""

from __future__ import annotations

import os
import signal
from types import SimpleNamespace

import pytest

from rtagent.clock import NANO
from rtagent.processes.pipe import MOST_AT_ONCE, Pipe
from rtagent.supervisor.child import KILL_AFTER_S, State
from rtagent.supervisor.children import LAST_CHECKPOINT_S
from tests.supervisor.test_child import FakeProcess
from tests.supervisor.watched import Watch, children_of, new_metrics


def test_a_learner_that_leaves_may_finish_its_last_checkpoint(watch: Watch) -> None:
    watched = watch("learner")
    watched.child.stop(101.0)
    watched.record.writing = 1
    watched.is_killed_at(101.0 + LAST_CHECKPOINT_S)
    watched.die(102.1 + LAST_CHECKPOINT_S)
    assert watched.children.last_checkpoint_lost
    ((kind, details),) = watched.told
    assert (kind, details["source"]) == ("checkpoint_failed", "learner 0")
    assert details["reason"] == (
        "the learner died before its last checkpoint was written, for which it has 60 s: "
        "it was killed"
    )


def test_a_learner_that_fails_before_its_last_checkpoint_was_not_killed(watch: Watch) -> None:
    watched = watch("learner")
    watched.children.add_writer(101.0)
    (watched.child,) = watched.children
    watched.child.stop(101.1)
    watched.child.note_error("Traceback\nRuntimeError: no device", boot=False)
    watched.die(102.0, 1)
    ((kind, details),) = watched.told
    assert kind == "checkpoint_failed"
    assert details["reason"].endswith(": RuntimeError: no device")


def test_a_learner_that_has_not_begun_to_write_is_not_its_killed_predecessor(watch: Watch) -> None:
    watched = watch("learner")
    watched.record.writing = 1
    watched.die(101.0)
    watched.process.exitcode = None
    watched.look(102.0)
    assert watched.child.state is State.STARTING
    watched.child.stop(102.0)
    watched.look(108.0)
    assert watched.asked == ["kill"]
    watched.die(108.1)
    assert [kind for kind, _ in watched.told] == ["died"]


@pytest.mark.parametrize("role", ["environment", "inference", "learner"])
def test_a_dead_process_is_not_ready(watch: Watch, role: str) -> None:
    """Or its memory would be given to the replay until it is started again."""
    watched = watch(role)
    watched.run()
    watched.record.ready = 1
    watched.die(201.0)
    assert not watched.record.ready


def test_what_a_learner_applied_is_not_spread_over_the_time_for_which_it_is_dead(
    watch: Watch,
) -> None:
    watched = watch("learner")
    record = watched.metrics.learners[0]
    record.add_mark(200 * NANO)
    record.applied = 100
    watched.die(200.2)
    record.add_mark(203 * NANO)
    assert record.applied_rate(206 * NANO, 5 * NANO) == 0.0


def test_a_death_is_reported_as_died_or_failed(watch: Watch) -> None:
    watched = watch("inference")
    watched.die(101.0, -signal.SIGSEGV)
    assert watched.child.state is State.BACKOFF
    watched.child.state = State.FAILED
    watched.children._report_death(watched.child)
    assert [kind for kind, _ in watched.told] == ["died", "failed"]
    died = watched.told[0][1]
    assert died["source"] == "inference 0"
    assert "SIGSEGV" in died["error"]
    assert died["again_in_s"] > 0.0


@pytest.mark.parametrize(("leaves", "told"), [(False, ["restarted"]), (True, [])])
def test_a_restart_is_told_once_and_not_of_a_process_that_is_leaving(
    watch: Watch, leaves: bool, told: list[str]
) -> None:
    watched = watch("inference")
    watched.child.restarted = True
    if leaves:
        watched.child.stop(101.0)
    for _ in range(2):
        assert list(watched.children._understand(watched.child, ["ready", {}], 102.0)) == []
    assert [kind for kind, _ in watched.told] == told


def test_restarts_are_counted_on_when_a_process_is_wanted_again(watch: Watch) -> None:
    """They are a counter of Prometheus, which must not fall; the new start itself is no restart."""
    watched = watch("learner")
    watched.die(101.0)
    watched.process.exitcode = None
    watched.look(102.0)
    watched.children.converge([], 103.0)
    watched.die(104.0)
    watched.process.exitcode = None
    watched.children.converge([("learner", 0)], 105.0)
    (child,) = watched.children
    assert (child.state, child.describe()["restarts"]) == (State.STARTING, 1)
    assert list(watched.children._understand(child, ["ready", {}], 106.0)) == []
    assert [kind for kind, _ in watched.told] == ["died"]
    watched.child = child
    watched.die(107.0)
    watched.process.exitcode = None
    watched.look(108.0)
    assert list(watched.children._understand(child, ["ready", {}], 109.0)) == []
    assert watched.told[-1] == ("restarted", {"source": "learner 0", "restarts": 2})


MESSAGES = [
    3, None, True, "ready", [], [[]], {}, ["ready"], ["ready", {}, {}], ["failed", "x"],
    ["failed", {"error": "x"}], ["failed", {"error": 3, "boot": True}], ["event"], ["event", []],
    ["event", {"kind": None}], {"id": 1, "name": "checkpoint"}, {"id": [], "name": "x"},
    {"id": 1, "name": {}, "arguments": {}, "by": "x"}, [{"a": "x" * 60_000}],
]


def test_messages_of_wrong_shape_are_reported_once_and_end_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    theirs: list[Pipe] = []

    def start(pipe: Pipe) -> SimpleNamespace:
        theirs.append(Pipe(pipe._end.dup()))
        return SimpleNamespace(pid=os.getpid(), exitcode=None, sentinel=sentinel[0])

    sentinel, other = os.pipe(), os.pipe()
    told: list[str] = []
    children = children_of(new_metrics(), start)
    monkeypatch.setattr(children._report, "event", lambda kind, **details: told.append(kind))
    children.add("environment", 0, 100.0)
    for message in MESSAGES:
        theirs[0].send(message)
    theirs[0].send(["event", {"kind": "world", "news": 3}])
    theirs[0].send({"id": 1, "name": "x", "arguments": {}, "by": "http"})
    theirs[0].send(["ready", {}])
    heard = list(children.listen(other[0], 0.0, lambda: 101.0))
    assert [message for _, message in heard] == [
        ("event", {"kind": "world", "news": 3}),
        ("command", {"id": 1, "name": "x", "arguments": {}, "by": "http"}),
    ]
    assert told == ["not_understood"]
    (child,) = children
    assert child.state is State.RUNNING
    for each in (*sentinel, *other):
        os.close(each)


def test_the_last_message_of_a_dead_process_is_read() -> None:
    process, said = FakeProcess(4711), []

    def start(pipe: Pipe) -> FakeProcess:
        news = [["event", {"kind": "world", "number": n}] for n in range(MOST_AT_ONCE + 20)]
        last = ["failed", {"error": "ValueError: last", "boot": False}]
        said.extend(pipe.send(message) for message in [*news, last])
        return process

    children = children_of(new_metrics(), start)
    children.add("environment", 0, 100.0)
    (child,) = children
    process.exitcode = 1
    heard = list(children.check(child, 101.0, stopping=False))
    assert all(said)
    assert len(heard) == MOST_AT_ONCE + 20
    assert (child.last_error, child.boot_error) == ("ValueError: last", False)


def test_what_is_killed_at_the_end_of_a_run_gives_its_descriptors_back() -> None:
    process = FakeProcess(4711)
    children = children_of(new_metrics(), lambda pipe: process)
    children.add("learner", 0, 100.0)
    children.kill_all()
    assert process.asked == ["kill"]
    assert process.closed


@pytest.mark.parametrize(("role", "ends"), [
    ("environment", True), ("evaluation", True), ("inference", False), ("learner", False),
])
def test_what_a_world_has_started_is_killed_with_it(watch: Watch, role: str, ends: bool) -> None:
    """What a learner has started may be a cluster's, which has a watcher of its own."""
    watched = watch(role)
    watched.child.kill("no heartbeat")
    assert watched.process.whole_tree == ends
    watched.process.whole_tree = False
    watched.child.stop(101.0)
    watched.child.enforce_stop(102.0 + KILL_AFTER_S)
    assert watched.process.whole_tree == ends
    watched.process.whole_tree = False
    watched.children.kill_all()
    assert watched.process.whole_tree == ends
