"""Shared by the tests of the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rtagent.cli import main
from tests.service.conftest import TOKEN, FakeBackend, RunningService, Serving
from tests.service.conftest import serving as serving


class Outcome(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str

    def document(self, code: int = 0) -> Any:
        """The JSON document that it printed, if it ended with this code."""
        assert self.code == code, self.err
        return json.loads(self.out)


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


def rtagent(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run `rtagent` in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "rtagent", *arguments], text=True, timeout=300, check=False,
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},
    )


@pytest.fixture
def state_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The configured one: not there yet, and never the user's own."""
    monkeypatch.setenv("RTAGENT_RUN__STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state"


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
