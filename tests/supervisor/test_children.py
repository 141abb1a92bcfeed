"""The processes of a run, without real ones: time limits, messages, deaths."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace

import pytest

from rtagent.clock import NANO
from rtagent.config import EnvConfig
from rtagent.memory.process_metrics import Doing
from rtagent.processes.pipe import MOST_AT_ONCE, Pipe
from rtagent.supervisor.child import KILL_AFTER_S, State
from rtagent.supervisor.children import (
    BOOT_LIMIT_S,
    BUSY_S,
    COMPUTING_LIMIT_S,
    LAST_CHECKPOINT_S,
    SERVICE_LIMIT_S,
    STOPPED_LEARNER_LIMIT_S,
)
from tests.supervisor.test_child import FakeProcess
from tests.supervisor.watched import Watched, children_of, new_metrics

Watch = Callable[[str], Watched]


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    """Starts a process of a role."""
    return partial(Watched, monkeypatch)


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


def test_a_learner_that_writes_nothing_leaves_like_others_and_loses_no_checkpoint(
    watch: Watch,
) -> None:
    watched = watch("learner")
    watched.child.stop(101.0)
    watched.look(107.0)
    assert watched.asked == ["kill"]
    watched.die(107.1)
    assert watched.told == []


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


def test_fresh_while_every_role_has_a_process_that_beats() -> None:
    metrics = new_metrics()
    children = children_of(metrics, lambda pipe: FakeProcess(os.getpid()))
    workers = [("environment", 0), ("inference", 0), ("inference", 1), ("recorder", 0)]
    for role, index in workers:
        children.add(role, index, 100.0)
    # A process that starts has time.
    assert children.fresh(100.0 + BOOT_LIMIT_S)
    assert not children.fresh(101.0 + BOOT_LIMIT_S)

    def beat(role: str, index: int, at: float) -> None:
        metrics.record(role, index).heartbeat_ns = int(at * 1e9)

    for child in children:
        child.mark_ready(100.0)
        beat(child.role, child.index, 200.0)
    assert children.fresh(201.0)
    assert not children.fresh(210.0)
    beat("environment", 0, 209.0)
    beat("inference", 0, 209.0)
    assert children.fresh(210.0)
    # A recorder is not needed.
    recorder, acting = children.of("recorder")[0], children.of("inference")[0]
    recorder.state = State.FAILED
    assert children.fresh(210.0)
    for state, fresh in ((State.FAILED, False), (State.BACKOFF, False), (State.RUNNING, True)):
        acting.state = state
        assert children.fresh(210.0) is fresh
    # Processes that were told to leave are not needed.
    children.stop(210.0)
    assert children.fresh(500.0)


@pytest.mark.parametrize(
    ("role", "stopped", "silent_s"),
    # A slow policy is silent for long. The service may be, too, while the machine is busy.
    [
        ("inference", True, 1.0), ("inference", False, 6.0), ("service", False, SERVICE_LIMIT_S),
        ("learner", True, STOPPED_LEARNER_LIMIT_S), ("learner", False, BOOT_LIMIT_S),
    ],
)
def test_a_silent_process_is_given_up_and_a_stopped_one_sooner(
    watch: Watch, role: str, stopped: bool, silent_s: float
) -> None:
    watched = watch(role)
    watched.stopped = stopped
    watched.run()
    watched.metrics.inference[0].estimate_s = 0.5
    watched.is_killed_at(200.0 + silent_s)


def test_a_stopped_learner_is_given_up_while_it_starts(watch: Watch) -> None:
    # It may hold the apply lock, under which it takes over the shared state.
    watched = watch("learner")
    watched.stopped = True
    watched.beat(200.0)
    watched.is_killed_at(200.0 + STOPPED_LEARNER_LIMIT_S)


@pytest.mark.parametrize(
    ("role", "stopped", "asked"),
    [("inference", True, ["kill"]), ("inference", False, []), ("learner", True, [])],
)
def test_a_stopped_process_that_should_leave_keeps_no_lock_from_the_others(
    watch: Watch, role: str, stopped: bool, asked: list[str]
) -> None:
    """Those that wait for the claim lock do not beat, and would be taken for hung after 2 s."""
    watched = watch(role)
    watched.stopped = stopped
    watched.run()
    watched.child.stop(200.7)
    watched.look(200.9)
    assert watched.asked == []
    watched.look(201.1)
    assert watched.asked == asked


@pytest.mark.parametrize(
    ("role", "ready"),
    [("learner", True), ("learner", False), ("inference", False), ("evaluation", False)],
)
def test_what_computes_or_loads_a_large_policy_has_more_time_than_what_hangs(
    watch: Watch, role: str, ready: bool
) -> None:
    watched, begun = watch(role), 100.0
    watched.computing = True
    if ready:
        watched.run()
        begun = 200.0
    watched.look(begun + COMPUTING_LIMIT_S - 0.1)
    assert watched.asked == []
    if role != "evaluation":
        assert watched.children.fresh(begun + COMPUTING_LIMIT_S - 0.1)
    watched.computing = False
    watched.look(begun + COMPUTING_LIMIT_S - 0.1)
    assert watched.asked == ["kill"]
    busy = watch(role)
    busy.computing = True
    busy.is_killed_at(100.0 + COMPUTING_LIMIT_S)


@pytest.mark.parametrize("role", ["environment", "inference", "service"])
def test_a_restarted_process_is_not_judged_by_the_heartbeat_of_its_predecessor(
    watch: Watch, role: str
) -> None:
    watched = watch(role)
    watched.child.mark_ready(100.0)
    watched.beat(110.0)
    watched.metrics.environment.note_doing(Doing.RESETTING, 110_000_000_000)
    watched.die(111.0, 1)
    assert watched.child.state is State.BACKOFF
    watched.process.exitcode = None
    # It starts again at once or long afterwards, and has not beaten yet.
    watched.child.start_at = now = 110.0 + 5 * BOOT_LIMIT_S
    watched.look(now)
    assert watched.child.state is State.STARTING
    watched.look(now + BOOT_LIMIT_S - 1.0)
    # Nor does what its predecessor did count once it works.
    watched.child.mark_ready(now + BOOT_LIMIT_S - 1.0)
    watched.look(now + BOOT_LIMIT_S)
    assert watched.children.fresh(now + BOOT_LIMIT_S)
    assert watched.child.busy is None
    assert watched.asked == []


@pytest.mark.parametrize(
    ("doing", "limit_s", "reason"),
    [
        (Doing.WAITING, 2.04, "no heartbeat for 2 s"),
        (Doing.STEPPING, 20.0, "a step has not come back for 20 s (env.step_limit_s)"),
        (Doing.RESETTING, 40.0, "a reset has not come back for 40 s (env.reset_limit_s)"),
    ],
)
def test_steps_and_resets_have_limits_of_their_own(
    watch: Watch, doing: Doing, limit_s: float, reason: str
) -> None:
    watched = watch("environment")
    watched.child.mark_ready(100.0)
    watched.beat(199.0)
    watched.metrics.environment.note_doing(doing, 200_000_000_000)
    watched.look(200.0 + BUSY_S - 0.1)
    assert watched.child.busy is None
    watched.look(200.0 + limit_s - 0.1)
    assert watched.asked == []
    assert watched.children.fresh(200.0 + limit_s - 0.1)
    assert watched.child.busy == (doing.name.lower() if doing else None)
    assert watched.child.describe()["busy"] == watched.child.busy
    watched.look(200.0 + limit_s + 0.1)
    assert watched.asked == ["kill"]
    watched.die(200.0 + limit_s + 0.2)
    assert watched.child.last_error == reason
    assert watched.child.describe()["busy"] is None


def test_a_step_within_a_long_tick_is_not_shown_as_a_hold_up(watch: Watch) -> None:
    watched = watch("environment")
    watched.children._tick_seconds = 3.0
    watched.child.mark_ready(100.0)
    watched.metrics.environment.note_doing(Doing.STEPPING, 200_000_000_000)
    watched.look(200.0 + 2.9)
    assert watched.child.busy is None
    watched.look(200.0 + 3.1)
    assert watched.child.busy == "stepping"


def test_a_stopped_environment_is_given_up_whatever_it_was_doing(watch: Watch) -> None:
    watched = watch("environment")
    watched.child.mark_ready(100.0)
    watched.metrics.environment.note_doing(Doing.RESETTING, 200_000_000_000)
    watched.stopped = True
    watched.is_killed_at(202.04)


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


@pytest.mark.parametrize("role", ["environment", "inference", "learner", "service"])
def test_after_a_pause_of_all_processes_none_is_late(watch: Watch, role: str) -> None:
    watched = watch(role)
    watched.child.mark_ready(100.0)
    watched.beat(100.0)
    # Stopped, and going on, all together.
    for now in (100.0, 100.1, 190.0):
        watched.step(now)
    assert watched.asked == []
    # After that, silence counts again.
    limit = {"environment": 2.04, "inference": 2.0, "learner": BOOT_LIMIT_S, "service": 10.0}[role]
    watched.is_killed_at(190.0 + limit)


def test_a_pause_is_told_with_its_length_and_a_usual_step_is_none() -> None:
    children = children_of(new_metrics(), lambda pipe: None)
    looks = [children.detect_pause(now) for now in (50.0, 50.1, 50.9, 56.9, 57.0)]
    assert looks == [0.0, 0.0, 0.0, pytest.approx(6.0), 0.0]


def test_a_process_that_is_leaving_gets_the_time_of_a_pause_back(watch: Watch) -> None:
    watched = watch("learner")
    watched.children.stop(100.0)
    for now in (100.0, 100.9, 160.9, 161.5):
        watched.step(now)
    assert watched.asked == []
    watched.step(162.2)
    assert watched.asked == ["terminate"]


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


def test_an_evaluation_may_take_as_long_for_a_reset_as_the_environment(watch: Watch) -> None:
    watched = watch("evaluation")
    watched.children._env = EnvConfig(reset_limit_s=3 * BOOT_LIMIT_S)
    watched.child.mark_ready(100.0)
    watched.is_killed_at(100.0 + 3 * BOOT_LIMIT_S)
