"""What is asked of a child at the start: an answer, a refusal, a death, or the wish to stop."""

from __future__ import annotations

import errno
import os
import pickle
import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from signal import SIGKILL, SIGSTOP
from types import SimpleNamespace
from unittest.mock import Mock

import multiprocess
import pytest

from benchmarks.process_figures import gone
from rtagent import load_config
from rtagent.errors import UserError
from rtagent.processes import launch
from rtagent.processes.fork_server import ANSWER
from rtagent.processes.launch import ForkServer, Process
from rtagent.supervisor import startup
from rtagent.supervisor.startup import _ask, find_shapes, record_run
from rtagent.telemetry import run_record
from tests import spawned
from tests.conftest import eventually, open_descriptors
from tests.refused import one_line
from tests.spawned import (
    answer,
    end_silently,
    fail_at_once,
    get_signal_while_answering,
    hang,
    hang_somewhere,
    refuse,
    start_simulator,
)

TEXTS = "child", "the child ended ({code})", "it failed"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ForkServer]:
    monkeypatch.setattr(launch, "PRELOAD", startup.__name__)
    with ForkServer() as server:
        yield server


def never() -> bool:
    return False


@pytest.mark.process
def test_answers_refusals_and_deaths(server: ForkServer) -> None:
    before = open_descriptors()
    assert _ask(server, never, *TEXTS, answer, ("good", 1)) == ("good", 1)
    with pytest.raises(UserError, match=r"^no such network$"):
        _ask(server, never, *TEXTS, refuse, "no such network")
    for code in (0, 7):
        with pytest.raises(UserError, match=f"exit code {code}"):
            _ask(server, never, *TEXTS, end_silently, code)
    assert open_descriptors().items() <= before.items()


@pytest.mark.process
def test_the_wait_ends_when_the_run_is_to_stop(server: ForkServer) -> None:
    looks = iter([False, False, True])
    assert _ask(server, lambda: next(looks), *TEXTS, hang) is None


@pytest.mark.process
def test_what_does_not_come_back_is_named(
    server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A child that is slow to start has had its time.
    _ask(server, never, *TEXTS, answer, "started")
    monkeypatch.setattr(startup, "LIMIT_S", 0.3)
    with pytest.raises(UserError, match=r"^the process child has not come back for 0\.3 s: find"):
        _ask(server, never, *TEXTS, hang)
    check_named(
        monkeypatch, "the simulator has not",
        partial(_ask, server, never, *TEXTS, hang_somewhere, "the simulator"),
    )


def check_named(monkeypatch: pytest.MonkeyPatch, named: str, ask: Callable[[], object]) -> None:
    """What has not come back is named.

    Each step has its own time. A busy machine may take the shorter one to begin the child.
    """
    said = []
    for limit_s in (1.0, 20.0):
        monkeypatch.setattr(startup, "LIMIT_S", limit_s)
        with pytest.raises(UserError, match=f"has not come back for {limit_s:g} s") as caught:
            ask()
        said.append(str(caught.value))
        if said[-1].startswith(named):
            return
    pytest.fail("; ".join(said))


@pytest.mark.process
@pytest.mark.parametrize(("setting", "named"), [
    ("env.id=faulty:never", "the environment of env.id = 'faulty:never' has not come back"),
    ("policy.factory=faulty:never", "the policy has not come back"),
])
def test_environments_and_policies_that_never_come_back_are_named(
    shared_fork_server: ForkServer, tmp_path: Path, setting: str, named: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _ask(shared_fork_server, never, *TEXTS, answer, "started")
    config = load_config(overrides=["env.rate_hz=30", setting])
    check_named(monkeypatch, named, partial(
        find_shapes, shared_fork_server, config, tmp_path / "checkpoints", never
    ))


@pytest.mark.process
def test_the_record_of_a_run_has_the_command_that_started_it(
    shared_fork_server: ForkServer, tmp_path: Path
) -> None:
    """It had that of the fork server: `-c`."""
    record_run(shared_fork_server, load_config(), tmp_path / "run", never)
    assert run_record.read(tmp_path / "run")["command"] == sys.argv


@pytest.mark.process
def test_a_refused_process_is_one_line(server: ForkServer, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    monkeypatch.setattr(server, "spawn", Mock(side_effect=refused))
    with pytest.raises(UserError, match=r"no process can be started: Resource temporarily.*ulimit"):
        _ask(server, never, *TEXTS, hang)


@pytest.mark.process
def test_a_fork_that_is_refused_says_where_to_look(
    server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, pipe = os.pipe()
    refused = Process(answers)
    os.write(pipe, ANSWER.pack(-errno.EAGAIN))
    os.close(pipe)
    monkeypatch.setattr(server, "spawn", lambda *ignored: refused)
    with pytest.raises(UserError, match=r"^no process: Resource temporarily.*; look at `ulimit"):
        _ask(server, never, *TEXTS, hang)


@pytest.mark.process
@pytest.mark.parametrize(("settings", "reason"), [
    (["policy.factory=faulty:WrongShape"], r"\(2, 4\), not to \(2, 3\)"),
    (["policy.factory=faulty:absent"], "absent"),
    (["policy.factory=nowhere:honest"], "nowhere"),
    (["env.id=Nowhere-v0"], "Nowhere"),
    (["env.id=gymnasium:Env"], "gymnasium:Env: AttributeError: 'Env' object has no"),
    (["env.id=Pendulum-v1", "env.rate_hz=30", "learning.algorithm=dqn"], "dqn"),
    (["env.id=CartPole-v1", "env.default_action=7"], "7"),
])
def test_what_cannot_be_built_is_refused_in_one_line(
    shared_fork_server: ForkServer, tmp_path: Path, settings: list[str], reason: str
) -> None:
    config = load_config(overrides=settings)
    with one_line(reason) as refusal:
        find_shapes(shared_fork_server, config, tmp_path / "checkpoints", never)
    assert "Traceback" not in str(refusal.value)


def test_an_error_that_nobody_foresaw_is_refused_in_one_line_and_printed_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe, place = SimpleNamespace(send=lambda *ignored: True), tmp_path / "answer"
    startup._answer(fail_at_once, (), "it failed", place.open("wb"), pipe)  # type: ignore[arg-type]
    nothing, refusal = pickle.loads(place.read_bytes())
    assert nothing is None
    place = rf"\({re.escape(spawned.__file__)}:\d+\)"
    assert re.fullmatch(rf"it failed: RuntimeError: no such kernel {place}", refusal)
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.process
def test_a_start_that_is_broken_off_leaves_no_simulator_behind(server: ForkServer) -> None:
    ours, theirs = multiprocess.Pipe()
    with ours, theirs:
        assert _ask(server, ours.poll, *TEXTS, start_simulator, theirs) is None
        started = ours.recv()
    eventually(lambda: all(map(gone, started)), "it is gone")


@pytest.mark.process
def test_a_child_that_is_stopped_or_killed_while_it_answers_blocks_nothing(
    server: ForkServer,
) -> None:
    looks = iter([False] * 10 + [True])
    stopped = _ask(server, lambda: next(looks), *TEXTS, get_signal_while_answering, SIGSTOP)
    assert stopped is None
    with pytest.raises(UserError, match=r"^the child ended \(exit code -9: killed, as by the "):
        _ask(server, never, *TEXTS, get_signal_while_answering, SIGKILL)
