"""Carrying out commands, with stubs of everything around the handler."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
from gymnasium.spaces import Discrete

from rtagent.clock import VirtualClock
from rtagent.config_sources import parse_config
from rtagent.env.actions import DiscreteActions
from rtagent.errors import UserError
from rtagent.live_config import live_values
from rtagent.memory.double_buffer import TooLong
from rtagent.r3.memory_usage import NotMeasured
from rtagent.supervisor.child import Child, State
from rtagent.supervisor.command_handler import CommandHandler, Desired
from rtagent.supervisor.commands import CHANGE_LIMIT_S, Inbox, NotInForce, PendingChanges
from tests.conftest import make_blueprint

stub: Any = SimpleNamespace


class Stage:
    """A handler whose coordinator, memory, control and processes refuse when told to."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.done: list[str] = []
        self.refusing: dict[str, Exception] = {}
        self.desired = Desired(parse_config({"learning": {"processes": 1}}))
        self.desired.publish(stub(write=self._does("control")))
        self.done.clear()
        self.inbox, self.pending = Inbox(), PendingChanges()
        self.learners: list[Child] = []
        self.events: list[tuple[Any, ...]] = []
        self.handler = CommandHandler(
            self.desired, self.inbox, self.pending, stub(),
            stub(reserve_learners=self._does("reserve")),
            stub(blueprint=make_blueprint(actions=DiscreteActions(Discrete(3)))),
            stub(reset_failed=self._does("reset_failed"), of=lambda role: self.learners),
            stub(set_budget=self._does("budget")), 100,
            stub(event=self._event), self.clock,
        )

    def _does(self, what: str) -> Callable[..., None]:
        def do(*ignored: Any, **also_ignored: Any) -> None:
            if what in self.refusing:
                raise self.refusing[what]
            self.done.append(what)

        return do

    def _event(self, kind: str, **details: Any) -> None:
        self.done.append("event")
        self.events.append((kind, *details.values()))

    def set(self, section: str, **changes: Any) -> Future[dict[str, Any]]:
        """Ask for a change, and have it carried out."""
        return self.command("set", {section: changes})

    def command(self, name: str, arguments: dict[str, Any]) -> Future[dict[str, Any]]:
        """Give a command, and have it taken."""
        result = self.inbox.put(name, arguments)
        with contextlib.suppress(KeyError, TooLong):
            self.handler.take()
        return result


@pytest.fixture
def stage() -> Iterator[Stage]:
    found = Stage()
    yield found
    found.inbox.close()


GOOD = {
    "inference": {"processes": 3}, "learning": {"processes": 2, "paused": True},
    "r3": {"memory_budget_mb": 900},
}


@pytest.mark.parametrize(("where", "name"), [
    *product(("change", "bounds", "control"), GOOD), ("budget", "r3"), ("reserve", "learning"),
])
def test_a_refused_change_has_changed_nothing_wherever_it_is_refused(
    stage: Stage, where: str, name: str
) -> None:
    desired, arguments = stage.desired.current, GOOD[name]
    if where == "change":
        arguments = {**arguments, "unknown": 1}
    elif where == "bounds":
        stage.handler._most_processes = 1
    else:
        stage.refusing[where] = TooLong("too long") if where == "control" else UserError("not now")
    reason = {"change": "unknown key", "bounds": "processes", "control": "internal error: TooLong"}
    with pytest.raises(UserError, match=reason.get(where, "not now")):
        stage.set(name, **arguments).result(0)
    assert stage.desired.current is desired
    assert not {"control", "reset_failed", "event"} & set(stage.done)
    assert stage.pending._pending == []


@pytest.mark.parametrize("name", GOOD)
def test_a_change_is_ordered_once_and_told(stage: Stage, name: str) -> None:
    assert not stage.set(name, **GOOD[name]).done()
    assert stage.done.count("control") == stage.done.count("event") == 1
    value = live_values(stage.desired.current.config)[name]
    assert value == value | GOOD[name]


@pytest.mark.parametrize("where", ["budget", "reserve"])
def test_a_change_of_several_sections_is_refused_whole(stage: Stage, where: str) -> None:
    stage.refusing[where] = UserError("not possible")
    both = {"r3": {"memory_budget_mb": 900}, "learning": {"processes": 2}}
    with pytest.raises(UserError, match="not possible"):
        stage.command("set", both).result(0)
    assert not {"control", "budget", "event"} & set(stage.done)


def test_an_empty_change_of_a_section_without_live_settings_is_refused(stage: Stage) -> None:
    with pytest.raises(UserError, match="policy: nothing in it can be changed while running"):
        stage.command("set", {"policy": {}}).result(0)
    assert stage.done == []
    assert stage.pending._pending == []


def test_the_event_shows_the_value_in_force_not_what_was_sent(stage: Stage) -> None:
    stage.set("learning", processes="2", paused=True)
    assert stage.events == [(
        "set", "learning", "python", {"processes": 1, "paused": False},
        {"processes": 2, "paused": True},
    )]


def test_what_is_already_in_force_is_no_event(stage: Stage) -> None:
    stage.set("learning", processes=1)
    assert stage.events == []
    stage.set("learning", processes=1, paused=True)
    assert stage.events == [("set", "learning", "python", {"paused": False}, {"paused": True})]


def test_what_is_already_in_force_does_not_begin_the_last_minute_anew(stage: Stage) -> None:
    stage.learners = [Child("inference", index, print, State.RUNNING) for index in range(2)]
    stage.handler._world.stagger = stub(algorithm="adaptive")
    for latency, since in ((0.0, 0.0), (20.0, 50.0)):
        stage.set("inference", processes=2, injected_latency_ms=latency)
        stage.handler.note_new_settings(50.0)
        assert stage.desired.current.inference_since == since


def test_a_command_that_fails_unexpectedly_is_refused_and_the_next_is_carried_out(
    stage: Stage,
) -> None:
    stage.refusing["reset_failed"] = KeyError("what")
    with pytest.raises(UserError, match=r"internal error: KeyError: 'what'"):
        stage.set("inference", processes=2).result(0)
    assert not stage.set("r3", memory_budget_mb=900).done()
    with pytest.raises(UserError, match="unknown command 'dance'"):
        stage.command("dance", {}).result(0)


def test_commands_behind_one_that_fails_unexpectedly_are_carried_out(stage: Stage) -> None:
    stage.refusing["reset_failed"] = KeyError("what")
    changes = {"inference": {"processes": 2}}, {"r3": {"memory_budget_mb": 900}}
    results = [stage.inbox.put("set", each) for each in changes]
    with pytest.raises(KeyError):
        stage.handler.take()
    assert results[0].done()
    assert stage.done.count("event") == 1
    assert stage.desired.current.config.r3.memory_budget_mb == 900


def test_a_budget_waits_for_the_first_measurement(stage: Stage) -> None:
    stage.refusing["budget"] = NotMeasured()
    result = stage.set("r3", memory_budget_mb=900)
    assert stage.done == []
    del stage.refusing["budget"]
    stage.handler.take()
    assert not result.done()
    assert stage.done == ["budget", "control", "event"]


def test_a_budget_is_refused_where_nothing_is_ever_measured(stage: Stage) -> None:
    stage.refusing["budget"] = NotMeasured()
    result = stage.set("r3", memory_budget_mb=900)
    stage.clock.advance(CHANGE_LIMIT_S - 0.1)
    stage.handler.take()
    assert not result.done()
    stage.clock.advance(0.1)
    stage.handler.take()
    with pytest.raises(UserError, match=r"memory_budget_mb.* could not be read in 30 s"):
        result.result(0)
    assert stage.done == []


@pytest.mark.parametrize(("section", "key", "bad", "said", "good"), [
    ("env", "default_action", 99, r"env\.default_action = 99: 99 is outside 0 to 2", 2),
    ("learning", "batch_size", 0, r"learning\.batch_size = 0", 16),
])
def test_a_change_of_several_sections_is_made_whole_or_not_at_all(
    stage: Stage, section: str, key: str, bad: int, said: str, good: int
) -> None:
    desired = stage.desired.current
    both = {"inference": {"processes": 3}, "learning": {"processes": 2}}
    both.setdefault(section, {})[key] = bad
    with pytest.raises(UserError, match=said):
        stage.command("set", both).result(0)
    assert stage.desired.current is desired
    assert stage.done == []
    both[section][key] = good
    assert not stage.command("set", both).done()
    assert stage.done.count("control") == 1
    assert stage.done.count("event") == len(both)
    assert stage.desired.current.processes == 3
    assert live_values(stage.desired.current.config)[section][key] == good


def test_a_change_that_comes_late_says_what_it_waits_for_and_then_that_it_is_in_force(
    stage: Stage,
) -> None:
    """As where a machine has no time to start a learner."""
    stage.learners = [Child("learner", 0, print, State.RUNNING), Child("learner", 1, print)]
    result = stage.set("learning", processes=2, batch_size=16)
    stage.learners[1].state = State.STARTING
    stage.pending.settle(CHANGE_LIMIT_S + 0.1)
    with pytest.raises(NotInForce) as caught:
        result.result(0)
    assert str(caught.value) == (
        "accepted and under way, but not in force in time; it waits for learner 1 (starting): "
        "`rtagent status` shows them, and the event in_force tells when it is in force"
    )
    assert stage.desired.current.learning.processes == 2
    told = ("in_force", "learning", ["batch_size", "processes"])
    for state, times in ((State.FAILED, 0), (State.STARTING, 0), (State.RUNNING, 1)):
        stage.learners[1].state = state
        stage.handler.note_new_settings(50.0)
        stage.handler.note_new_settings(51.0)
        assert stage.events.count(told) == times


def test_a_change_whose_process_fails_stays_and_says_so(stage: Stage) -> None:
    stage.learners = [Child("learner", 0, print, State.RUNNING), Child("learner", 1, print)]
    result = stage.set("learning", processes=2)
    error = "Traceback (most recent call last):\n  ...\nout of memory"
    stage.learners[1].state, stage.learners[1].last_error = State.FAILED, error
    stage.pending.settle(1.0)
    with pytest.raises(NotInForce, match="it stays, but learner 1 failed: out of memory; it is st"):
        result.result(0)
    assert stage.desired.current.learning.processes == 2
    stage.learners[1].state = State.RUNNING
    stage.handler.note_new_settings(50.0)
    assert ("in_force", "learning", ["processes"]) in stage.events


def test_a_change_that_is_in_force_in_time_needs_no_event(stage: Stage) -> None:
    stage.learners = [Child("learner", 0, print, State.RUNNING)]
    result = stage.set("learning", batch_size=16)
    stage.pending.settle(1.0)
    assert result.result(0)["learning"]["batch_size"] == 16
    stage.handler.note_new_settings(2.0)
    assert [each[0] for each in stage.events] == ["set"]


def test_inference_that_has_failed_is_no_error_of_rtagent_itself(stage: Stage) -> None:
    stage.learners = [Child("inference", 0, print, State.FAILED)]
    stage.handler._world = stub(blueprint=make_blueprint(), stagger=stub(algorithm="adaptive"))
    result = stage.set("inference", processes=1)
    stage.handler.note_new_settings(1.0)
    stage.pending.settle(1.0)
    with pytest.raises(UserError, match="inference 0 failed"):
        result.result(0)


@pytest.mark.parametrize(("config", "section", "changes", "said"), [
    ({"learning": {"processes": 0, "transitions": "executed"}}, "learning", {"processes": 1},
     "learning.transitions = 'executed' does not fit"),
    ({"learning": {"processes": 1}}, "r3",
     {"mode": "step", "deadline_s": 60.0, "data_budget": 1000},
     "r3.mode = 'step' does not fit"),
])
def test_settings_that_do_not_fit_a_recurrent_policy_are_refused_while_it_runs(
    stage: Stage, config: dict[str, Any], section: str, changes: dict[str, Any], said: str
) -> None:
    stage.desired.put(replace(stage.desired.current, config=parse_config(config)))
    assert not stage.set(section, **changes).done()
    stage.desired.put(replace(stage.desired.current, config=parse_config(config)))
    stage.handler._world.blueprint = make_blueprint(
        actions=DiscreteActions(Discrete(3)), state_size=4
    )
    with pytest.raises(UserError, match=said):
        stage.set(section, **changes).result(0)


@pytest.mark.parametrize("length", [1, 8])
def test_learners_are_refused_to_a_policy_that_answers_with_chunks(
    stage: Stage, length: int
) -> None:
    stage.handler._world.blueprint = make_blueprint(
        actions=DiscreteActions(Discrete(3)), chunk=length
    )
    with pytest.raises(UserError, match=r"learning\.processes = 2: .* chunks of actions"):
        stage.set("learning", processes=2).result(0)


@pytest.mark.parametrize("state", [State.STARTING, State.RUNNING, State.STOPPING, State.FAILED])
def test_a_checkpoint_waits_for_a_learner_that_starts(stage: Stage, state: State) -> None:
    """Right after `wait_ready`, which waits for acting alone, it was refused."""
    stage.learners = [Child("learner", 0, print, state), Child("learner", 1, print, State.RUNNING)]
    written: list[dict[str, Any]] = []
    stage.handler._checkpoints = stub(begin=lambda *_: lambda: dict(*written) or None)
    stage.handler._memory.handles = None
    result = stage.command("checkpoint", {})
    stage.pending.settle(1.0)
    if state not in (State.STARTING, State.RUNNING):
        with pytest.raises(UserError, match="no learner runs that could write a checkpoint"):
            result.result(0)
        return
    assert not result.done()
    assert stage.desired.current.checkpoint == 1
    written.append({"file": "checkpoint 1"})
    stage.pending.settle(2.0)
    assert result.result(0) == {"file": "checkpoint 1"}
