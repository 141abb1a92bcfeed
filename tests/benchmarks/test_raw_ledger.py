"""Finding a daemon's ledger from outside."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.raw_ledger import ARENA, ledger_file


def test_a_descriptor_that_closes_meanwhile_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "4").symlink_to("/dev/null")
    (tmp_path / "5").symlink_to(ARENA + " (deleted)")
    monkeypatch.setattr(os, "listdir", lambda folder: ["3", "4", "5"])
    assert ledger_file(str(tmp_path)) == f"{tmp_path}/5"


def test_a_process_without_a_ledger(tmp_path: Path) -> None:
    (tmp_path / "4").symlink_to("/dev/null")
    with pytest.raises(FileNotFoundError, match="no ledger"):
        ledger_file(str(tmp_path))
