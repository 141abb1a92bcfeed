"""The supervisor's own decisions, with everything around it played by the test."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rtagent.clock import VirtualClock
from rtagent.config_sources import parse_config
from rtagent.errors import UserError
from rtagent.memory.cells import TooLong
from rtagent.r3.coordinator import NotMeasured
from rtagent.supervisor.commands import Command
from rtagent.supervisor.supervisor import Supervisor


class Stage:
    """A supervisor whose coordinator, memory, orders and processes refuse when they are told to."""

    def __init__(self, folder: Path) -> None:
        config = parse_config({"run": {"state_dir": str(folder)}, "learning": {"processes": 1}})
        self.done: list[str] = []
        self.refusing: dict[str, Exception] = {}
        self.supervisor = Supervisor(config, VirtualClock(), "run")
        stubs: dict[str, Any] = {
            "_coordinator": SimpleNamespace(set_budget=self._does("budget")),
            "_memory": SimpleNamespace(reserve_learners=self._does("reserve")),
            "world": SimpleNamespace(control=SimpleNamespace(write=self._does("orders"))),
            "_crew": SimpleNamespace(forgive=self._does("forgive")),
            "_report": SimpleNamespace(event=self._does("event")),
            "_most_processes": 100,
        }
        for name, stub in stubs.items():
            setattr(self.supervisor, name, stub)

    def _does(self, what: str) -> Callable[..., None]:
        def do(*ignored: Any, **also_ignored: Any) -> None:
            if what in self.refusing:
                raise self.refusing[what]
            self.done.append(what)

        return do

    def command(self, name: str, **arguments: Any) -> Future[dict[str, Any]]:
        """Give a command, and have it taken."""
        command = Command(name, arguments, "test", Future())
        self.supervisor._inbox._queue.put(command)
        self.supervisor._duties.do("commands", self.supervisor._take_commands)
        return command.result


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


GOOD = [
    ("set_inference", {"processes": 3}),
    ("set_learning", {"processes": 2, "paused": True}),
    ("set_deadlines", {"memory_budget_mb": 900}),
]


@pytest.mark.parametrize(("name", "arguments"), GOOD)
@pytest.mark.parametrize("where", ["change", "bounds", "budget", "reserve", "orders"])
def test_a_refused_change_has_changed_nothing_wherever_it_is_refused(
    stage: Stage, name: str, arguments: dict[str, Any], where: str
) -> None:
    settings = stage.supervisor._settings
    concerned = {"budget": "set_deadlines", "reserve": "set_learning"}.get(where, name)
    if where == "change":
        arguments = {**arguments, "unknown": 1}
    elif where == "bounds":
        stage.supervisor._most_processes = 1
    elif where == "orders":
        stage.refusing[where] = TooLong("a document too long")
    else:
        stage.refusing[where] = UserError("not possible")
    result = stage.command(name, **arguments)
    if concerned != name:
        assert not result.done()
        return
    reasons = r"cannot be changed|not possible|internal error: TooLong|processes"
    with pytest.raises(UserError, match=reasons):
        result.result(0)
    assert stage.supervisor._settings is settings
    assert not {"orders", "forgive", "event"} & set(stage.done)
    assert stage.supervisor._changes._pending == []


@pytest.mark.parametrize(("name", "arguments"), GOOD)
def test_a_change_is_ordered_once_and_told(
    stage: Stage, name: str, arguments: dict[str, Any]
) -> None:
    assert not stage.command(name, **arguments).done()
    assert stage.done.count("orders") == stage.done.count("event") == 1
    section = {"set_inference": "inference", "set_learning": "learning", "set_deadlines": "r3"}
    value = stage.supervisor._settings.value(section[name])
    assert value == value | arguments


def test_a_command_that_fails_unexpectedly_is_refused_and_the_next_is_carried_out(
    stage: Stage,
) -> None:
    stage.refusing["forgive"] = KeyError("what")
    with pytest.raises(UserError, match=r"internal error: KeyError: 'what'"):
        stage.command("set_inference", processes=2).result(0)
    assert not stage.command("set_deadlines", memory_budget_mb=900).done()
    with pytest.raises(UserError, match="unknown command 'dance'"):
        stage.command("dance").result(0)


def test_a_budget_waits_for_the_first_measurement(stage: Stage) -> None:
    stage.refusing["budget"] = NotMeasured()
    result = stage.command("set_deadlines", memory_budget_mb=900)
    assert stage.done == []
    del stage.refusing["budget"]
    stage.supervisor._take_commands()
    assert not result.done()
    assert stage.done == ["budget", "orders", "event"]
