"""Shared by the tests of the command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from rtagent.cli import main


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
