"""A folder of checkpoints has one learner; without Ray's processes, in virtual time."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import ray
from ray.exceptions import ActorDiedError, RayTaskError

from rtagent.clock import VirtualClock
from rtagent.cluster import ray_learner, ray_session
from rtagent.cluster.calls import EndedError
from rtagent.cluster.held_folder import LOCK, WAIT_S, hold, tell_nodes
from rtagent.cluster.ray_checks import LostError, NotStartedError
from rtagent.errors import UserError


class Ending(VirtualClock):
    """A clock, and a learner that ends while somebody waits, and lets go what it holds."""

    def __init__(self, held: int) -> None:
        super().__init__()
        self._held: int | None = held

    def sleep_until(self, when: float) -> None:
        super().sleep_until(when)
        if self._held is not None and when > WAIT_S / 2:
            os.close(self._held)
            self._held = None


def held(folder: Path) -> int:
    found = hold(folder, VirtualClock())
    assert found is not None
    return found


def test_a_second_learner_is_told_what_to_do(tmp_path: Path) -> None:
    first, clock = held(tmp_path / "new"), VirtualClock()
    with pytest.raises(UserError) as caught:
        hold(tmp_path / "new", clock)
    assert str(caught.value) == (
        f"another learner writes its checkpoints into {tmp_path / 'new'}: end that one, or choose "
        "another folder with --checkpoint-dir"
    )
    assert clock.now() == pytest.approx(WAIT_S, abs=0.2)
    os.close(first)
    os.close(held(tmp_path / "new"))


def test_a_learner_that_is_just_ending_is_waited_for(tmp_path: Path) -> None:
    clock = Ending(held(tmp_path))
    found = hold(tmp_path, clock)
    assert found is not None
    assert clock.now() < WAIT_S
    os.close(found)


class Restarted:
    """What Ray says of an actor."""

    was_current_actor_reconstructed = False

    def get_actor_name(self) -> str:
        return "mine"

    def get_actor_id(self) -> str:
        return "a"


@pytest.fixture
def actor(monkeypatch: pytest.MonkeyPatch) -> Restarted:
    found = Restarted()
    monkeypatch.setattr(ray_learner, "MonotonicClock", VirtualClock)
    monkeypatch.setattr(ray_learner.LearnerActor, "_learn", lambda _: None)
    monkeypatch.setattr(ray, "get_runtime_context", lambda: found)
    return found


def test_a_learner_does_not_begin_where_it_cannot_write(actor: Restarted, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    folder = str(tmp_path / "file" / "folder")
    with pytest.raises(UserError) as caught:
        ray_learner.LearnerActor(folder)
    assert str(caught.value).startswith(
        f"the learner cannot write its checkpoints into {folder}: Not a directory; choose"
    )
    # Started again on another machine, it learns on.
    actor.was_current_actor_reconstructed = True
    ray_learner.LearnerActor(folder)


@pytest.mark.parametrize("again", [False, True])
def test_a_learner_does_not_begin_in_the_folder_of_another(
    actor: Restarted, again: bool, tmp_path: Path
) -> None:
    first = held(tmp_path)
    actor.was_current_actor_reconstructed = again
    with pytest.raises(UserError, match="another learner writes"):
        ray_learner.LearnerActor(str(tmp_path))
    os.close(first)


@pytest.mark.parametrize(("name", "given", "used"), [
    # A daemon that starts the learner knows no folder.
    ("mine", None, "named"), ("mine", "given", "given"), ("other", None, None),
])
def test_a_learner_writes_where_its_node_says_whoever_starts_it(
    actor: Restarted, name: str, given: str | None, used: str | None, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    environ = dict[str, str]()
    tell_nodes(name, tmp_path / "named", environ)
    for variable, value in environ.items():
        monkeypatch.setenv(variable, value)
    folder = None if given is None else str(tmp_path / given)
    status = ray_learner.LearnerActor(folder)._learner.status()
    assert status["checkpoint_dir"] == (None if used is None else str(tmp_path / used))
    assert [each.parent.name for each in tmp_path.glob(f"*/{LOCK}")] == [used] * bool(used)


WHY = "another learner writes its checkpoints into /there: end that one"
TRACE = (
    'ray::LearnerActor.__init__()\n  File "a.py", line 1, in hold\n'
    f"rtagent.errors.UserError: {WHY}"
)


def killed() -> ActorDiedError:
    error = ActorDiedError()
    error.error_msg += "\n\tname: rtagent\nThe actor is dead because it was killed by `ray.kill`."
    return error


@pytest.mark.parametrize(("error", "kind", "why"), [
    (
        ActorDiedError(RayTaskError("__init__", TRACE, UserError(WHY), "learner", 1, "127.0.0.1")),
        NotStartedError, WHY,
    ),
    # Of one that could not even start, `rtagent learner` would end.
    (
        killed(), LostError,
        "the learner has ended: The actor is dead because it was killed by `ray.kill`.",
    ),
])
def test_a_learner_that_could_not_begin_or_was_ended_is_lost_at_once(
    error: ActorDiedError, kind: type[LostError], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It "did not answer", again and again, and Ray would start it again. The cluster is there.
    monkeypatch.setattr(ray_session, "Watch", lambda: SimpleNamespace(check=lambda: None))
    monkeypatch.setattr(ray, "get", Mock(side_effect=error))
    monkeypatch.setattr(ray, "wait", lambda refs, **_: (refs, []))
    call = SimpleNamespace(remote=lambda *_: object())
    learner = ray_session.LearnerHandle(SimpleNamespace(status=call, join=call))
    # It would be asked for two minutes if Ray started it again.
    learner._patience_s = 0.0
    with pytest.raises(LostError) as caught:
        learner.status()
    assert (type(caught.value), str(caught.value)) == (kind, why)
    learner.begin("join")
    learner.wait(0.0)
    ((_, found),) = learner.finished()
    assert isinstance(found, EndedError)
    assert str(found) == why
