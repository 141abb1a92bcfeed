"""Shared by the tests of the command line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from rtagent.cli import main
from tests.service.conftest import TOKEN, FakeBackend, RunningService


class Outcome(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str


Run = Callable[..., Outcome]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `rtagent` in this process."""

    def run_it(*arguments: str) -> Outcome:
        capsys.readouterr()
        try:
            code = main(list(arguments))
        except SystemExit as exit_:
            code = int(exit_.code or 0)
        return Outcome(code, *capsys.readouterr())

    return run_it


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningService]:
    """A service, announced in the configured state directory."""
    monkeypatch.setenv("RTAGENT_RUN__STATE_DIR", str(tmp_path))
    monkeypatch.delenv("RTAGENT_TOKEN", raising=False)
    service = RunningService(FakeBackend())
    service.start()
    note = {"url": f"http://127.0.0.1:{service.port}/", "pid": os.getpid(), "run_id": "r1"}
    (tmp_path / "daemon.json").write_text(json.dumps(note))
    (tmp_path / "token").write_text(TOKEN + "\n")
    yield service
    service.stop()
