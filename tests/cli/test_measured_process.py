"""The process in which the policy and a learning step are measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import pytest

from rtagent.cli import measured_process
from rtagent.config import Config
from rtagent.evaluation import probe


class Pipe:
    """Keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Any]] = []

    def send(self, message: tuple[str, Any]) -> None:
        self.sent.append(message)


@pytest.fixture
def measure(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[tuple[str, Any]]]:
    monkeypatch.setattr(measured_process, "start_life", lambda name: None)
    monkeypatch.setattr(probe, "probe_with_weights", lambda config: None)

    def run(body: Callable[..., Any]) -> list[tuple[str, Any]]:
        pipe = Pipe()
        measured_process._run(Config(), body, None, pipe)
        return pipe.sent

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
