"""Commands: each is taken once, and each gets an answer."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Thread
from typing import Any
from unittest.mock import Mock

import pytest

from rtagent.errors import UserError
from rtagent.supervisor.child import Child, State
from rtagent.supervisor.commands import (
    CHANGE_LIMIT_S,
    Inbox,
    NotInForce,
    PendingChanges,
    Result,
    on_their_way,
    running,
)


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    found = Inbox()
    yield found
    if not found._closed:
        found.close()


def readable(inbox: Inbox) -> bool:
    return bool(select.select([inbox.wake_reader], [], [], 0.0)[0])


def workers(*states: State) -> list[Child]:
    return [
        Child("inference", index, lambda theirs: None, state) for index, state in enumerate(states)
    ]


def test_command_is_taken_once_and_answered(inbox: Inbox) -> None:
    assert list(inbox.take()) == []
    result = inbox.put("set_inference", {"processes": 3})
    (command,) = inbox.take()
    assert (command.name, command.arguments) == ("set_inference", {"processes": 3})
    assert list(inbox.take()) == []
    command.result.set_result({"processes": 3})
    assert result.result(0) == {"processes": 3}


def test_order_is_kept_between_threads(inbox: Inbox) -> None:
    def put(name: str) -> None:
        for number in range(100):
            inbox.put(name, {"number": number})

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(put, "abc"))
    taken = [(command.name, command.arguments["number"]) for command in inbox.take()]
    for name in "abc":
        assert [number for each, number in taken if each == name] == list(range(100))


def test_wakes_the_supervisor(inbox: Inbox) -> None:
    assert not readable(inbox)
    inbox.put("anything", {})
    assert readable(inbox)
    inbox.drain_wake()
    assert not readable(inbox)
    inbox.drain_wake()


def test_many_wake_ups_do_not_block(inbox: Inbox) -> None:
    # More than a pipe holds; a signal handler must never wait here.
    for _ in range(70_000):
        inbox.wake()
    assert readable(inbox)


def test_a_wake_up_at_the_end_is_not_written_into_another_file(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The supervisor closes the inbox between the look at the descriptor and the write."""
    write, closer = os.write, Thread(target=inbox.close)
    still_open: list[bool] = []

    def late(descriptor: int, data: bytes) -> int:
        closer.start()
        closer.join(0.02)
        still_open.append(os.path.exists(f"/proc/self/fd/{descriptor}"))
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", late)
    inbox.wake()
    closer.join()
    assert still_open == [True]
    assert inbox._closed


def test_command_of_the_service_is_answered_there(inbox: Inbox) -> None:
    sent: list[Any] = []
    for number in (1, 2, 3):
        message = {"id": number, "name": "set_inference", "arguments": {"processes": number},
                   "by": "dashboard"}
        inbox.put_from_service(message, sent.append)
    first, second, third = inbox.take()
    assert first.by == third.by == "dashboard"
    first.result.set_result({"processes": 1})
    second.result.set_exception(UserError("not so many"))
    third.result.set_exception(NotInForce("not in force in time"))
    assert sent == [
        {"id": 1, "result": {"processes": 1}}, {"id": 2, "refused": "not so many"},
        {"id": 3, "late": "not in force in time"},
    ]


def test_an_answer_to_a_service_that_is_gone_is_dropped(
    inbox: Inbox, caplog: pytest.LogCaptureFixture
) -> None:
    message = {"id": 1, "name": "x", "arguments": {}, "by": "http"}
    inbox.put_from_service(message, Mock(side_effect=BrokenPipeError))
    (command,) = inbox.take()
    command.result.set_result({})
    # A future swallows what its callback raises, and logs it.
    assert caplog.records == []


def test_whatever_waits_at_the_end_is_refused(inbox: Inbox) -> None:
    results = [inbox.put("x", {}), inbox.put("y", {})]
    reader = inbox.wake_reader
    inbox.close()
    for result in results:
        with pytest.raises(UserError, match="the daemon has stopped"):
            result.result(0)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(reader)


def test_command_after_the_end_is_refused(inbox: Inbox) -> None:
    inbox.close()
    with pytest.raises(UserError, match="the daemon has stopped"):
        inbox.put("x", {}).result(0)


# ---- changes that take their time


Pending = tuple[PendingChanges, Result, list[Any]]
"""A change, its result, and a list whose last element is what is in force."""


@pytest.fixture
def pending() -> Pending:
    changes, result, in_force = PendingChanges(), Result(), [None]

    def look() -> dict[str, Any] | None:
        if isinstance(in_force[-1], UserError):
            raise in_force[-1]
        return in_force[-1]

    changes.add(result, look, 0.0, lambda: "not in force in time")
    return changes, result, in_force


def test_change_in_force(pending: Pending) -> None:
    changes, result, in_force = pending
    changes.settle(1.0)
    assert not result.done()
    in_force.append({"processes": 2})
    changes.settle(2.0)
    assert result.result(0) == {"processes": 2}
    # Resolved once; a second time would raise.
    changes.settle(3.0)


def test_change_that_takes_too_long(pending: Pending) -> None:
    changes, result, _ = pending
    changes.settle(CHANGE_LIMIT_S)
    assert not result.done()
    changes.settle(CHANGE_LIMIT_S + 0.1)
    with pytest.raises(NotInForce, match="not in force in time"):
        result.result(0)


def test_a_pause_of_all_processes_extends_the_limit_of_a_change(pending: Pending) -> None:
    changes, result, _ = pending
    changes.postpone(50.0)
    changes.settle(CHANGE_LIMIT_S + 50.0)
    assert not result.done()
    changes.settle(CHANGE_LIMIT_S + 50.1)
    assert result.done()


def test_change_that_fails(pending: Pending) -> None:
    changes, result, in_force = pending
    in_force.append(UserError("inference 1 failed: out of memory"))
    changes.settle(1.0)
    with pytest.raises(UserError, match="inference 1 failed: out of memory"):
        result.result(0)


def test_a_change_that_fails_unexpectedly_delays_no_answer_to_the_others() -> None:
    changes, failing, other = PendingChanges(), Result(), Result()
    changes.add(failing, lambda: {}["policy"], 0.0, lambda: "late")
    changes.add(other, lambda: {"processes": 2}, 0.0, lambda: "late")
    with pytest.raises(KeyError):
        changes.settle(1.0)
    with pytest.raises(UserError, match="internal error: KeyError: 'policy'"):
        failing.result(0)
    assert other.result(0) == {"processes": 2}
    # It is told once, not at every step.
    changes.settle(2.0)


def test_change_may_have_a_limit_of_its_own() -> None:
    changes, result = PendingChanges(), Result()
    changes.add(result, lambda: None, 10.0, lambda: "late", limit=100.0)
    changes.settle(109.0)
    assert not result.done()
    changes.settle(110.1)
    assert result.done()


@pytest.mark.parametrize(("states", "count", "so_many"), [
    ([State.RUNNING, State.RUNNING], 2, True),
    ([State.RUNNING, State.STOPPED], 1, True),
    ([State.STOPPED, State.STOPPED, State.RUNNING], 1, True),
    ([], 0, True),
    ([State.RUNNING, State.STARTING], 2, False),
    ([State.RUNNING, State.BACKOFF], 2, False),
    ([State.RUNNING, State.STOPPING], 1, False),
    ([State.RUNNING], 2, False),
    ([State.RUNNING, State.RUNNING], 1, False),
])
def test_whether_the_wanted_number_runs(states: list[State], count: int, so_many: bool) -> None:
    assert running(workers(*states), count) is so_many


@pytest.mark.parametrize(("final", "said"), [
    (False, "it is started again by itself, and the event in_force tells"),
    (True, "it is not started again before its settings change"),
])
def test_it_is_said_whether_a_failed_process_is_started_again(final: bool, said: str) -> None:
    failed = workers(State.FAILED)
    failed[0].boot_error = final
    with pytest.raises(NotInForce, match=said):
        running(failed, 1)


def test_processes_in_transition_are_named_with_their_states() -> None:
    assert on_their_way(workers(State.RUNNING, State.STOPPED)) == ""
    two = workers(State.STARTING, State.RUNNING, State.BACKOFF)
    assert on_their_way(two) == "inference 0 (starting), inference 2 (backoff)"
    many = on_their_way(workers(*[State.STARTING] * 5))
    assert many.endswith("inference 2 (starting) and 2 more")


def test_open_changes_at_the_end(pending: Pending) -> None:
    changes, result, _ = pending
    changes.close()
    with pytest.raises(UserError, match="the daemon has stopped"):
        result.result(0)
    changes.close()
