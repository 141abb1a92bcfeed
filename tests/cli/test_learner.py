"""`rtagent learner`, with a stand-in for Ray."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import rtagent.cluster
from rtagent.cli.learner import PERIOD_S, follow, in_a_line, reports
from rtagent.clock import VirtualClock
from rtagent.cluster.held_folder import VARIABLE
from rtagent.cluster.ray_checks import LostError, NotStartedError
from rtagent.errors import UserError
from tests.cli.conftest import Refused, Run

NODE = {"id": "robot-1", "share": 32, "generated": 600, "rate": 49.96, "learned": 64,
        "silent_s": 0.1}


def status(batches: int, incarnation: str = "a", **changes: Any) -> dict[str, Any]:
    return {
        "incarnation": incarnation, "batches": batches, "checkpoint_dir": None,
        "checkpoint_error": None, "nodes": [NODE],
        **changes,
    }


class Session(ModuleType):
    """What `rtagent.cluster.ray_session` does, without Ray."""

    def __init__(self) -> None:
        super().__init__("rtagent.cluster.ray_session")
        self.calls: list[tuple[Any, ...]] = []
        self.refused: str | None = None
        self.token = False
        self.answers: Iterator[dict[str, Any]] = iter([status(100)])

    def has_named_token(self) -> bool:
        return self.token

    def head(self) -> str:
        return "192.0.2.1:6379"

    def connect(self, address: str | None, resources: dict[str, float] | None) -> None:
        self.calls.append(("connect", address, resources))
        if self.refused:
            raise UserError(self.refused)

    def find_learner(self, name: str, folder: Path | None) -> Session:
        self.calls.append(("find_learner", name, folder))
        print("(raylet) a node was marked dead\n")
        return self

    def status(self) -> dict[str, Any]:
        for answer in self.answers:
            return answer
        raise KeyboardInterrupt

    def disconnect(self) -> None:
        self.calls.append(("disconnect",))


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    session = Session()
    monkeypatch.setitem(sys.modules, session.__name__, session)
    monkeypatch.setattr(rtagent.cluster, "ray_session", session, raising=False)
    monkeypatch.setattr("rtagent.cli.learner.MonotonicClock", VirtualClock)
    # So that it is as it was after the test.
    monkeypatch.setenv(VARIABLE, "")
    return session


def test_ctrl_c_that_was_dropped_ends_it_at_the_next_line(
    run: Run, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray starts programs: what Ctrl-C raises in a hook that follows a fork is dropped."""
    def connect(*_: object) -> None:
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(session, "connect", connect)
    session.answers = iter([status(100), status(120)])
    found = run("learner")
    assert (found.code, len(found.out.splitlines())) == (0, 1)


def test_it_joins_finds_tells_and_leaves(run: Run, session: Session) -> None:
    found = run("learner", "--address", "10.0.0.1:6379", "--resources", "learner=1",
                "--resources", "arm=2", "--name", "7", "--checkpoint-dir", "/srv/learner")
    assert found.code == 0
    assert found.out == "100 batches; robot-1: share 32, 50.0 transitions/s\n"
    assert session.calls == [
        ("connect", "10.0.0.1:6379", {"learner": 1.0, "arm": 2.0}),
        ("find_learner", "7", Path("/srv/learner")), ("disconnect",),
    ]


def test_a_relative_folder_is_one_of_the_command_s_own_folder(
    run: Run, session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was below the working directory of the node on which the learner ran."""
    monkeypatch.chdir(tmp_path)
    run("learner", "--name", "7", "--checkpoint-dir", "saved")
    assert session.calls[1] == ("find_learner", "7", tmp_path / "saved")
    assert os.environ[VARIABLE] == f"7={tmp_path / 'saved'}"


def test_nodes_that_it_starts_know_the_folder_before(
    run: Run, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = []
    monkeypatch.setattr(session, "connect", lambda *_: told.append(os.environ[VARIABLE]))
    run("learner", "--name", "7", "--checkpoint-dir", "/srv/learner")
    assert told == ["7=/srv/learner"]


@pytest.mark.parametrize(("used", "said"), [
    (None, "and writes no checkpoints: /srv/mine is"),
    ("/srv/its", "and writes its checkpoints into /srv/its: /srv/mine is"), ("/srv/mine", ""),
])
def test_a_learner_that_ran_before_with_another_folder_is_told_once(
    run: Run, session: Session, used: str | None, said: str
) -> None:
    session.answers = iter([status(100, checkpoint_dir=used), status(120, checkpoint_dir=used)])
    found = run("learner", "--address", "10.0.0.1:6379", "--checkpoint-dir", "/srv/mine")
    assert found.code == 0
    lines = [line for line in found.err.splitlines() if "/srv/mine" in line]
    assert len(lines) == bool(said)
    assert all(said in line for line in lines)
    assert "/srv" not in run("learner", "--address", "10.0.0.1:6379").err


def test_without_options_a_ray_of_its_own(run: Run, session: Session) -> None:
    found = run("learner", "--json")
    assert session.calls[:2] == [("connect", None, None), ("find_learner", "rtagent", None)]
    assert found.document() == status(100) | {"batches_per_s": None}


@pytest.mark.parametrize(
    ("token", "told"),
    [(False, "no daemon can join this learner"), (True, "cluster.address=192.0.2.1:6379\n")],
)
def test_a_ray_of_its_own_says_who_can_join(
    run: Run, session: Session, token: bool, told: str
) -> None:
    session.token = token
    assert told in run("learner").err
    assert "cluster.address=" not in run("learner", "--address", "10.0.0.1:6379").err


def test_without_ray_it_says_what_to_install(refused: Refused, session: Session) -> None:
    session.refused = "needs Ray: pip install 'rtagent[cluster]'"
    assert refused("learner") == f"rtagent: {session.refused}\n"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--name", "a b"), "cluster.name"), (("--address", "auto"), "cluster.address = 'auto'"),
        (("--address", ""), "cluster.address = ''"), (("--resources", "learner"), "NAME=AMOUNT"),
        (("--resources", "learner=0"), "NAME=AMOUNT"), (("--resources", "=1"), "NAME=AMOUNT"),
        (("--resources", "a=0.5"), "whole"), (("--resources", "GPU=1"), "Ray counts GPU by itself"),
        (("--resources", "arm=1", "--resources", "arm=2"), "--resources arm: given more than once"),
    ],
)
def test_bad_options_are_one_line(
    refused: Refused, session: Session, options: tuple[str, ...], named: str
) -> None:
    assert named in refused("learner", *options)
    assert session.calls == []


def test_the_rate_is_that_since_the_line_before_and_of_one_learner() -> None:
    answers = iter([status(100), status(110), None, status(150), status(3, "b"), status(9, "b")])

    def ask() -> dict[str, Any]:
        answer = next(answers)
        if answer is None:
            raise UserError("the learner does not answer")
        return answer

    clock = VirtualClock(50.0)
    found = reports(ask, clock)
    assert next(found)["batches_per_s"] is None
    assert next(found)["batches_per_s"] == pytest.approx(10 / PERIOD_S)
    assert in_a_line(next(found)) == "the learner does not answer"
    assert next(found)["batches_per_s"] == pytest.approx(40 / (2 * PERIOD_S))
    assert next(found)["batches_per_s"] is None
    assert in_a_line(next(found)).startswith("9 batches, 3.0 per second; robot-1")
    assert clock.now() == pytest.approx(50.0 + 5 * PERIOD_S)


def test_a_cluster_that_is_lost_is_joined_anew() -> None:
    said: list[str] = []
    clusters = iter(["a", None, "b"])

    def join() -> Any:
        said.append("join")
        if (which := next(clusters)) is None:
            raise UserError("no Ray cluster")
        answers = iter([status(1, which), status(2, which)])

        def ask() -> dict[str, Any]:
            for answer in answers:
                return answer
            raise LostError("the head was started again")

        return ask

    found = follow(join, lambda: said.append("leave"), VirtualClock(50.0))
    lines = [next(found) for _ in range(6)]
    assert [each.get("incarnation") or each["error"] for each in lines] == [
        "a", "a", "the head was started again", "no Ray cluster", "b", "b",
    ]
    assert said == ["join", "leave", "join", "leave", "join"]


def test_a_cluster_that_is_lost_before_its_learner_has_answered_is_waited_for() -> None:
    failures = iter([LostError("its head is gone"), UserError("no Ray cluster"), None])

    def join() -> Any:
        if failure := next(failures):
            raise failure
        return lambda: status(1)

    found = follow(join, lambda: None, VirtualClock())
    assert [next(found)["error"] for _ in range(2)] == ["its head is gone", "no Ray cluster"]
    assert next(found)["batches"] == 1


def test_a_learner_that_could_not_start_at_first_is_an_error() -> None:
    def join() -> Any:
        raise NotStartedError("another learner writes its checkpoints there")

    with pytest.raises(UserError, match="another learner"):
        next(follow(join, lambda: None, VirtualClock()))


def test_a_learner_that_never_answers_is_an_error() -> None:
    def ask() -> dict[str, Any]:
        raise UserError("the learner does not answer")

    with pytest.raises(UserError, match="does not answer"):
        next(reports(ask, VirtualClock()))


def test_names_of_others_are_printed_harmlessly() -> None:
    report = status(1, nodes=[NODE | {"id": "x\x1b[2J"}], batches_per_s=None)
    assert "\x1b" not in in_a_line(report)
    assert in_a_line(status(0, nodes=[], batches_per_s=None)) == "0 batches; no node yet"


def test_a_checkpoint_that_cannot_be_written_is_told() -> None:
    report = status(3, batches_per_s=None, checkpoint_error="cannot write: No space left")
    assert in_a_line(report).endswith("50.0 transitions/s; cannot write: No space left")
