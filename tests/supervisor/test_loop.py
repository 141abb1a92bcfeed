"""The order of the duties in a step of the supervisor, with stubs of everything around it."""

from __future__ import annotations

import errno
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from rtagent.clock import NANO, VirtualClock
from rtagent.config import Config
from rtagent.errors import UserError
from rtagent.memory.ledger import Ledger
from rtagent.memory.weights import WeightsInfo
from rtagent.runtime import STOP_LIMIT_S
from rtagent.supervisor.child import KILL_AFTER_S, State
from rtagent.supervisor.children import LAST_CHECKPOINT_S, UNKILLABLE_AFTER_S, Children
from rtagent.supervisor.command_handler import Desired
from rtagent.supervisor.loop import Loop
from tests.conftest import make_blueprint
from tests.refused import one_line
from tests.rows import write_row
from tests.supervisor.test_child import FakeProcess
from tests.supervisor.watched import ENV, new_metrics


class Played:
    """A loop over one process, which never really exists."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Any]] = []
        self.clock = clock = VirtualClock()
        report: Any = SimpleNamespace(
            event=lambda kind, **details: self.told.append((kind, details.get("reason"))),
            write=lambda *ignored: None,
        )
        self.process = FakeProcess(4711)
        self.inbox = SimpleNamespace(
            stop_requested=False, given_up=None, wake_reader=-1, drain_wake=lambda: None
        )
        self.metrics = new_metrics()
        self.children = children = Children(
            self.metrics, lambda *key: lambda pipe: self.process, report, 0.02, 0, ENV
        )
        # Its messages do not matter here.
        children.listen = lambda *ignored: iter(())  # type: ignore[method-assign]
        children.add("inference", 0, clock.now())
        (self.child,) = children
        nothing = SimpleNamespace(
            tend=lambda: None, poll=lambda: None, settle=lambda now: None, take=lambda: None,
            start_anew=lambda: None,
        )
        world = SimpleNamespace(
            ledger=SimpleNamespace(newest=1), first_tick=0, status=None, metrics=new_metrics(),
            learner=SimpleNamespace(
                number=0, progress=SimpleNamespace(updates=0),
                checkpoints=SimpleNamespace(updates=0),
            ),
        )
        run: Any = SimpleNamespace(
            setup=SimpleNamespace(
                desired=Desired(Config()), inbox=self.inbox, report=report, clock=clock,
                service=None,
            ),
            children=children, world=world, fork_server=nothing, saving=nothing, pending=nothing,
            commands=nothing, scaling=nothing,
        )
        systemd: Any = SimpleNamespace(step=lambda *ignored: None)
        self.loop = Loop(run, systemd)

    def stop_after(self, updates: int, saved: int = 0) -> None:
        """Ask the run to stop after so many updates, of which so many are in a checkpoint."""
        state = self.loop._world.learner
        state.number = state.progress.updates = updates
        state.checkpoints.updates = saved
        self.inbox.stop_requested = True


@pytest.fixture
def played() -> Played:
    return Played()


def test_a_process_that_leaves_before_it_is_told_to_has_not_died(played: Played) -> None:
    """A signal to the whole group may end a process before the step that tells it to leave."""
    played.inbox.stop_requested = True
    played.process.exitcode = 0
    played.loop._step()
    assert played.told == [("stopping", None)]
    assert played.child.state is State.STOPPED


def test_the_events_tell_why_a_run_ends_by_itself(played: Played) -> None:
    def stop() -> None:
        played.inbox.stop_requested = True

    played.inbox.request_stop = stop
    refuse = Mock(side_effect=UserError("the budget is too small"))
    played.loop._parts.memory_keeping = SimpleNamespace(step=refuse)  # type: ignore[misc]
    played.loop._keep_memory(0.0)
    played.loop._step()
    assert played.told == [("stopping", "the budget is too small")]
    with pytest.raises(UserError, match="too small"):
        played.loop._raise_refusals()


@pytest.mark.parametrize(("rate_hz", "tick", "tick_s", "alone"), [
    (60.0, 0, 2.0, True), (60.0, 0, 0.05, False), (60.0, 0, 3.95, False),
    # Where no tick is due meanwhile, that there is none says nothing.
    (0.1, 0, 2.0, True), (0.1, 0, 0.05, None),
    # Nor does it after so long that earlier rows are gone.
    (60.0, 7, 3.95, None), (60.0, 7, 0.05, False),
])
def test_the_event_of_a_pause_tells_whether_the_world_went_on(
    played: Played, rate_hz: float, tick: int, tick_s: float, alone: bool | None
) -> None:
    """A long work of the supervisor, or of the program around it, is no pause of all processes."""
    told: list[bool | None] = []
    played.loop._report.event = (  # type: ignore[method-assign]
        lambda kind, alone, **_: told.append(alone)
    )
    rows = np.array([(tick, int(tick_s * NANO))], [("tick", np.int64), ("time_ns", np.int64)])
    played.loop._world.ledger.read = lambda first, stop: rows  # type: ignore[method-assign]
    played.loop._world.blueprint = make_blueprint(rate_hz=rate_hz)
    played.loop._parts.pending.postpone = lambda seconds: None  # type: ignore[method-assign]
    played.loop._notice_pause(0.0)
    played.loop._notice_pause(4.0)
    assert told == [alone]


def test_ticks_of_the_run_before_are_not_the_world_going_on(played: Played) -> None:
    """A restored row has the time of another clock where the machine was started anew since."""
    world, blueprint = played.loop._world, make_blueprint(rate_hz=60.0)
    world.ledger, world.blueprint = Ledger.private(blueprint, 32), blueprint
    for tick in range(4):
        write_row(world.ledger, tick, time_ns=tick * NANO)
    world.first_tick = 3
    assert played.loop._ticked(1.5, 2.5) is False
    assert played.loop._ticked(2.5, 3.5) is True


def test_a_run_that_is_given_up_ends_without_telling_its_processes_to_save(played: Played) -> None:
    played.inbox.given_up = UserError("the state directory is held by another daemon")
    assert played.loop._finished()
    assert not played.loop._desired.current.stop
    assert played.child.alive
    with pytest.raises(UserError, match="held by another"):
        played.loop._raise_refusals()


def test_a_run_that_is_given_up_while_the_replay_is_saved_writes_no_more(played: Played) -> None:
    """The folder is that of another daemon by then, and a large replay takes minutes."""
    looks = iter([False, False, False, True])

    def poll(timeout: float) -> bool:
        played.inbox.given_up = UserError("the state directory is held by another daemon")
        return next(looks)

    played.loop._parts.saving.poll = poll  # type: ignore[method-assign]
    with pytest.raises(UserError, match="held by another"):
        played.loop._await_save()
    assert len(list(looks)) == 3


@pytest.mark.parametrize(("refusals", "starts"), [(0, 1), (1, 2), (2, 2)])
def test_a_saver_that_is_refused_is_tried_once_more_by_another_fork_server(
    played: Played, refusals: int, starts: int
) -> None:
    done: list[str] = []
    saving: Any = SimpleNamespace(busy=False, poll=lambda seconds: True)

    def start_save(handles: Any) -> None:
        done.append("start")
        saving.busy = done.count("start") > refusals

    saving.start_save = start_save
    parts: Any = played.loop._parts
    parts.saving, parts.memory = saving, SimpleNamespace(handles=None)
    parts.fork_server = SimpleNamespace(tend=lambda: done.append("tend"))
    played.loop._desired.current = replace(
        played.loop._desired.current, config=Config(run={"checkpoint_replay": True})
    )
    played.loop._save_replay()
    assert done == ["start", "tend", "start"][: 2 * starts - 1]


@pytest.mark.parametrize(
    ("learned", "saved", "dead", "starts"),
    [(7, 5, True, True), (7, 5, False, False), (7, 7, True, False), (0, 0, True, False)],
)
def test_the_last_checkpoint_of_dead_learners_is_written_once(
    played: Played, learned: int, saved: int, dead: bool, starts: bool
) -> None:
    if not dead:
        played.children.add("learner", 0, 0.0)
    played.stop_after(learned, saved)
    for _ in range(3):
        played.loop._step()
    assert [child.role for child in played.children] == (
        ["inference"] if dead and not starts else ["inference", "learner"]
    )
    writer = played.children.of("learner")
    assert bool(played.metrics.learners[0].writing) == starts
    assert all(child.state is State.STOPPING for child in writer)


@pytest.mark.parametrize(
    ("saved", "failures", "writing", "starts"),
    [(5, 0, False, True), (7, 0, False, False), (5, 1, False, False), (5, 0, True, False)],
)
def test_what_a_learner_had_no_time_to_save_is_saved_by_another(
    played: Played, saved: int, failures: int, writing: bool, starts: bool
) -> None:
    """It was starting, or an update took longer than a process has to leave."""
    played.children.add("learner", 0, 0.0)
    learner, played.process = played.process, FakeProcess(4712)
    played.stop_after(updates=7, saved=5)
    played.loop._step()
    played.metrics.learners[0].writing = writing
    played.loop._world.learner.checkpoints.updates = saved
    played.loop._world.metrics.learners[0].checkpoint_failures += failures
    learner.exitcode = -9
    for _ in range(2):
        played.loop._step()
    assert played.loop._finished() != starts
    assert bool(played.children.alive) == starts
    assert bool(played.metrics.learners[0].writing) == starts
    played.process.exitcode = 0
    for _ in range(2):
        played.loop._step()
    assert played.loop._finished()


@pytest.mark.parametrize(("sent", "saved", "attempts", "starts"), [
    (7, 5, {}, True), (7, 7, {}, False),
    (7, 5, {"checkpoint_failures": 1}, False), (7, 5, {"checkpoints": 1}, False),
])
def test_what_a_dead_gateway_could_not_have_saved_is_said_by_another(
    played: Played, sent: int, saved: int, attempts: dict[str, int], starts: bool
) -> None:
    """The learner in the cluster has the state: it was lost without a word."""
    played.children.add("learner", 0, 0.0)
    gateway, played.process = played.process, FakeProcess(4712)
    world, desired = played.loop._world, played.loop._desired
    desired.current = replace(desired.current, config=Config(learning={"where": "cluster"}))
    world.weights = SimpleNamespace(info=lambda: WeightsInfo(3, sent))
    record = world.metrics.learners[0]
    record.applied = 2
    played.stop_after(0, saved)
    played.loop._step()
    for name, count in attempts.items():
        setattr(record, name, count)
    gateway.exitcode = -9
    for _ in range(2):
        played.loop._step()
    assert bool(played.children.alive) == starts


def test_a_stop_while_every_process_is_dead_still_saves_what_was_learned(played: Played) -> None:
    played.process.exitcode = -9
    played.loop._check(played.child, 0.0)
    assert played.child.state is State.BACKOFF
    played.process = FakeProcess(4712)
    played.stop_after(updates=7)
    assert not played.loop._finished()
    played.loop._step()
    assert [child.role for child in played.children.alive] == ["learner"]
    # Nothing acts any more: it need not wait for other programs.
    played.loop._step()
    assert not played.process.idle


@pytest.mark.parametrize(("refusals", "starts"), [(1, True), (2, False)])
def test_a_writer_of_the_last_checkpoint_that_is_refused_is_tried_once_more(
    played: Played, refusals: int, starts: bool
) -> None:
    """The fork server had died, and all learners with it; the next one comes at the next step."""
    gone = OSError(errno.EPIPE, "Broken pipe")
    start = Mock(side_effect=[gone] * refusals + [played.process])
    played.children._starter = lambda *key: start
    played.stop_after(updates=7, saved=5)
    played.process.exitcode = -9
    played.loop._step()
    assert not played.loop._finished()
    played.process.exitcode = None
    played.loop._step()
    assert [child.role for child in played.children.alive] == ["learner"] * starts
    assert played.loop._finished() != starts


def test_a_checkpoint_lost_long_before_the_stop_is_not_the_last_one(played: Played) -> None:
    """A learner that was sent away took too long to write, and others have learned since."""
    played.children.last_checkpoint_lost = True
    played.stop_after(updates=7, saved=5)
    played.loop._step()
    assert [child.role for child in played.children.alive] == ["inference", "learner"]


def test_a_program_waits_for_a_last_checkpoint_that_another_learner_writes(played: Played) -> None:
    """A learner was busy with an earlier checkpoint until its time was nearly over."""
    played.children.add("learner", 0, 0.0)
    learner, played.process = played.process, FakeProcess(4712)
    played.metrics.learners[0].writing = 1
    played.stop_after(updates=7)
    for leaving in (learner, played.process):
        played.loop._step()
        played.clock.advance(LAST_CHECKPOINT_S - 1.0)
        played.metrics.learners[0].writing = 0
        leaving.exitcode = 0
        played.loop._step()
    assert played.loop._finished()
    assert LAST_CHECKPOINT_S + 30.0 < played.clock.now() < STOP_LIMIT_S


def test_a_process_that_not_even_sigkill_ends_is_left_behind_in_one_line(played: Played) -> None:
    played.children.add("learner", 0, played.clock.now())
    played.metrics.learners[0].writing = 1
    played.inbox.stop_requested = True
    while not played.loop._finished():
        played.clock.advance(0.5)
        played.loop._step()
        assert played.clock.now() < 200.0
    # The learner had its time to write.
    assert played.clock.now() > LAST_CHECKPOINT_S + UNKILLABLE_AFTER_S
    with one_line(r"^inference 0 \(pid 4711\), learner 0 \(pid 4711\): not even"):
        played.loop._raise_unkillable()


def test_a_process_that_sigkill_ends_is_waited_for(played: Played) -> None:
    played.inbox.stop_requested = True
    played.loop._step()
    played.clock.advance(KILL_AFTER_S + UNKILLABLE_AFTER_S - 0.1)
    assert not played.loop._finished()
    played.process.exitcode = -9
    played.loop._step()
    assert played.loop._finished()
    played.loop._raise_unkillable()


def test_a_world_that_slips_all_the_time_says_so_now_and_then(played: Played) -> None:
    environment = played.loop._world.metrics.environment
    for _ in range(25):
        environment.slips += 3
        played.loop._note_slips(played.clock.now())
        played.clock.advance(1.0)
    assert played.told == [("slip", None)] * 3
