"""Requests for checkpoints, and how each is answered."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rtagent.errors import UserError
from rtagent.supervisor.checkpoint_requests import KEPT, CheckpointRequests
from rtagent.supervisor.child import Child, State
from rtagent.supervisor.commands import NotInForce

HANDLES: Any = None


def requests(
    outcome: dict[str, Any] | None = None, learners: tuple[State, ...] = (State.RUNNING,)
) -> CheckpointRequests:
    saving: Any = SimpleNamespace(busy=False, outcome=outcome, start_save=lambda handles: None)
    found = [
        Child("learner", index, lambda pipe: None, state, last_error="killed by SIGKILL")
        for index, state in enumerate(learners)
    ]
    children: Any = SimpleNamespace(of={"learner": found}.__getitem__)
    return CheckpointRequests(saving, children)


def written(number: int | None, **details: Any) -> dict[str, Any]:
    return {"file": f"checkpoint {number}", "request": number, **details}


def test_a_checkpoint_answers_all_requests_before_it() -> None:
    """A learner that finds several requests writes once, and names the newest."""
    asked = requests()
    first, second, third = (asked.begin(number, {}, HANDLES) for number in (1, 2, 3))
    assert asked.note(written(2)) == {"file": "checkpoint 2"}
    assert third() is None
    assert first() == second() == {"file": "checkpoint 2", "replay": False}
    asked.note(written(3))
    assert third() == {"file": "checkpoint 3", "replay": False}


def test_each_request_is_answered_by_the_first_checkpoint_after_it() -> None:
    asked = requests()
    first = asked.begin(1, {}, HANDLES)
    asked.note(written(0, reason="written for nobody, before it"))
    assert first() is None
    second = asked.begin(2, {}, HANDLES)
    asked.note(written(1))
    asked.note(written(2, reason="no room"))
    assert first() == {"file": "checkpoint 1", "replay": False}
    with pytest.raises(UserError, match="could not be written: no room"):
        second()


@pytest.mark.parametrize(("learners", "why"), [
    ((State.BACKOFF,), "since learner 0 has died: killed by SIGKILL; the next learner"),
    ((State.STOPPED, State.FAILED), "since learner 1 has died"),
    ((State.STOPPED,), "since all learners have left"),
    # Another one writes it, or is still writing it.
    ((State.BACKOFF, State.RUNNING), None), ((State.STOPPING, State.STOPPED), None),
    ((State.STARTING,), None),
])
def test_a_request_without_a_learner_is_answered_at_once(
    learners: tuple[State, ...], why: str | None
) -> None:
    asked = requests(learners=learners)
    wait = asked.begin(1, {}, HANDLES)
    if why is None:
        assert wait() is None
    else:
        with pytest.raises(NotInForce, match=why):
            wait()
    asked.note(written(1))
    assert wait() == {"file": "checkpoint 1", "replay": False}


def test_a_replay_that_cannot_be_written_is_reported_with_the_checkpoint() -> None:
    asked = requests(outcome={"failed": "no room"})
    wait = asked.begin(1, {"replay": True}, HANDLES)
    asked.note(written(1))
    with pytest.raises(UserError, match="checkpoint 1 is written, but not the replay: no room"):
        wait()


def test_a_later_checkpoint_without_a_request_does_not_change_the_answer() -> None:
    asked = requests()
    wait = asked.begin(1, {}, HANDLES)
    asked.note(written(1))
    asked.note(written(1, reason="no room"))
    assert wait() == {"file": "checkpoint 1", "replay": False}


def test_few_outcomes_are_kept() -> None:
    asked = requests()
    early = asked.begin(1, {}, HANDLES)
    for number in range(1, 100):
        asked.note(written(number))
    asked.note(written(None))
    assert early() == {"file": f"checkpoint {100 - KEPT}", "replay": False}
