"""The process in which the policy and a learning step are measured."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from rtagent.cli import measured_process
from rtagent.cli.stop_signal import handled_by
from rtagent.config import Config
from rtagent.errors import LIMITS
from rtagent.evaluation import probe
from rtagent.processes.launch import REFUSED
from tests.refused import one_line


@pytest.fixture
def measure(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[tuple[str, Any]]]:
    monkeypatch.setattr(measured_process, "start_life", lambda name: None)
    monkeypatch.setattr(probe, "probe_with_weights", lambda config: None)

    def run(body: Callable[..., Any]) -> list[tuple[str, Any]]:
        sent: list[tuple[str, Any]] = []
        measured_process._run(Config(), body, None, SimpleNamespace(send=sent.append))
        return sent

    return run


def test_an_error_of_the_user_s_own_code_is_told_with_its_place(
    measure: Callable[..., list[tuple[str, Any]]]
) -> None:
    def fail(*_: object) -> NoReturn:
        raise ValueError("no gradients here")

    (kind, told), = measure(fail)
    assert kind == "failed"
    assert told.startswith(f"measuring failed: ValueError: no gradients here ({__file__}:")


def test_an_error_of_rtagent_itself_keeps_its_calls(
    measure: Callable[..., list[tuple[str, Any]]]
) -> None:
    with pytest.raises(TypeError):
        measure(len)


@pytest.mark.parametrize(("failure", "code", "said"), [
    ("no process: Resource temporarily unavailable", REFUSED,
     f"^no process: Resource temporarily unavailable; {LIMITS}$"),
    (None, -11, r"ended its process \(exit code -11\) while it was measured$"),
    # In a container with --memory the environment was blamed for the kernel's doing.
    (None, -9, r"\(exit code -9: killed, as by the kernel where memory runs out\) while it was"),
])
def test_why_nothing_was_measured_is_told_and_nothing_is_left_behind(
    monkeypatch: pytest.MonkeyPatch, failure: str | None, code: int, said: str
) -> None:
    """The environment was blamed where the system had refused a process."""
    ended: list[bool] = []
    process = SimpleNamespace(
        failure=failure, exitcode=code, join=lambda timeout=None: None, close=lambda: None,
        kill=lambda *, whole_tree=False: ended.append(whole_tree),
    )
    fork_server = SimpleNamespace(spawn=lambda *_: process)
    monkeypatch.setattr(measured_process.launch, "ForkServer", lambda: nullcontext(fork_server))
    with one_line(said):
        measured_process.in_measured_process(Config(), print, None, "measuring")
    assert ended == [True], "a simulator ends with it"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_ends_the_command_leaves_no_simulator_behind(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """`timeout` sends SIGTERM, of which the command died at once."""
    ended: list[bool] = []
    process = SimpleNamespace(
        join=lambda: None, close=lambda: None, kill=lambda *, whole_tree: ended.append(whole_tree),
    )
    fork_server = SimpleNamespace(spawn=lambda *_: process)
    monkeypatch.setattr(measured_process.launch, "ForkServer", lambda: nullcontext(fork_server))
    pipe = SimpleNamespace(recv=lambda: signal.raise_signal(number), close=lambda: None)
    monkeypatch.setattr(measured_process.multiprocess, "Pipe", lambda: (pipe, pipe))

    def die(*_: object) -> None:
        raise AssertionError("the command would be dead")

    with handled_by(die), pytest.raises(KeyboardInterrupt):
        measured_process.in_measured_process(Config(), print, None, "measuring")
    assert ended == [True]
