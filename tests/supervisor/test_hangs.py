"""Which processes are given up: those that hang or are stopped, not those that all paused."""

from __future__ import annotations

import os

import pytest

from rtagent.config import EnvConfig
from rtagent.memory.process_metrics import Doing
from rtagent.supervisor.child import State
from rtagent.supervisor.children import (
    BOOT_LIMIT_S,
    BUSY_S,
    COMPUTING_LIMIT_S,
    SERVICE_LIMIT_S,
    STOPPED_LEARNER_LIMIT_S,
)
from tests.supervisor.test_child import FakeProcess
from tests.supervisor.watched import Watch, children_of, new_metrics


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


@pytest.mark.parametrize(("doing", "limit_s", "reason"), [
    (Doing.WAITING, 2.04, "no heartbeat for 2 s"),
    (Doing.STEPPING, 20.0, "a step has not come back for 20 s (env.step_limit_s)"),
    (Doing.RESETTING, 40.0, "a reset has not come back for 40 s (env.reset_limit_s)"),
])
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


def test_an_evaluation_may_take_as_long_for_a_reset_as_the_environment(watch: Watch) -> None:
    watched = watch("evaluation")
    watched.children._env = EnvConfig(reset_limit_s=3 * BOOT_LIMIT_S)
    watched.child.mark_ready(100.0)
    watched.is_killed_at(100.0 + 3 * BOOT_LIMIT_S)
