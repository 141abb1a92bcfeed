"""What is opened is a file of a bounded size, or an error that does not wait."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rtagent.files.regular_file import open_regular, read_regular
from tests.conftest import open_descriptors


def test_a_file_and_a_link_to_one(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"content")
    (tmp_path / "b").symlink_to("a")
    for name in "ab":
        assert read_regular(tmp_path / name, 7) == b"content"
        with open_regular(tmp_path / name) as file:
            assert file.read() == b"content"


@pytest.mark.parametrize(("name", "reason"), [
    ("none", "No such file"), ("folder", "Is a directory"), ("pipe", "not a regular file"),
    ("/dev/zero", "not a regular file"), ("large", "8 bytes, and 7 are the most"),
])
def test_anything_else_is_an_error_at_once(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(bytes(8))
    before = open_descriptors()
    with pytest.raises(OSError) as caught:  # noqa: PT011 - the reason is compared below
        read_regular(tmp_path / name, 7)
    assert reason in (caught.value.strerror or "")
    assert open_descriptors().items() <= before.items()
