"""Shared by the tests of the command line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from rtagent.cli import main
from tests.service.conftest import TOKEN, FakeBackend, RunningService, Serving
from tests.service.conftest import serving as serving


class Outcome(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str


Run = Callable[..., Outcome]
Refused = Callable[..., str]


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
def refused(run: Run) -> Refused:
    """Run what must be refused in one line, which is returned, and with code 2."""

    def run_it(*arguments: str) -> str:
        code, out, err = run(*arguments)
        assert (code, out, err.count("\n")) == (2, "", 1), err
        return err

    return run_it


def announce(folder: Path, url: str, pid: int | None = None) -> None:
    """The notes that a daemon leaves in its state directory."""
    note = {"url": url, "pid": pid or os.getpid(), "run_id": "r1"}
    (folder / "daemon.json").write_text(json.dumps(note))
    (folder / "token").write_text(TOKEN + "\n")


@pytest.fixture
def service(
    serving: Serving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[RunningService]:
    """A service, announced in the configured state directory."""
    monkeypatch.setenv("RTAGENT_RUN__STATE_DIR", str(tmp_path))
    monkeypatch.delenv("RTAGENT_TOKEN", raising=False)
    with serving(FakeBackend()) as service:
        announce(tmp_path, f"http://127.0.0.1:{service.port}/")
        yield service


@pytest.fixture
def backend(service: RunningService) -> FakeBackend:
    """The imitated daemon behind the service."""
    return service.backend
