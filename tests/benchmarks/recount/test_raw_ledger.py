"""Finding a daemon's ledger from outside."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.recount.raw_ledger import ARENA, arenas


def test_a_descriptor_that_closes_meanwhile_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "4").symlink_to("/dev/null")
    for number, name in ((5, "frames"), (6, "ledger"), (11, "ledger"), (12, "call")):
        (tmp_path / str(number)).symlink_to(f"{ARENA}{name} (deleted)")
    monkeypatch.setattr(os, "listdir", lambda folder: ["11", "12", "3", "4", "5", "6"])
    assert arenas(str(tmp_path)) == {"frames": f"{tmp_path}/5", "ledger": f"{tmp_path}/6"}


def test_a_process_without_a_ledger(tmp_path: Path) -> None:
    (tmp_path / "4").symlink_to("/dev/null")
    with pytest.raises(FileNotFoundError, match="no ledger"):
        arenas(str(tmp_path))
