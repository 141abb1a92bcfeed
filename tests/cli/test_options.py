"""Checks of options that several commands share."""

from __future__ import annotations

from pathlib import Path

import pytest

from rtagent.cli.options import check_written
from rtagent.errors import UserError


@pytest.mark.parametrize(("name", "why"), [
    ("folder.png", "Is a directory"),
    ("none/a.png", "No such file or directory"),
    ("file/a.png", "Not a directory"),
    ("locked.png", "Permission denied"),
    ("new.png", None),
    ("old.png", None),
])
def test_it_is_told_why_a_picture_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, why: str | None
) -> None:
    (tmp_path / "folder.png").mkdir()
    for each in ("file", "locked.png", "old.png"):
        (tmp_path / each).touch()
    # To root nothing is locked.
    monkeypatch.setattr("os.access", lambda path, mode: Path(path).name != "locked.png")
    path = tmp_path / name
    if why is None:
        check_written("--picture", path)
        return
    with pytest.raises(UserError) as caught:
        check_written("--picture", path)
    assert str(caught.value) == f"--picture {path}: cannot be written: {why}"
