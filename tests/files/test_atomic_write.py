"""Files that appear whole: the order in which they reach the disk, and what a failure leaves."""

from __future__ import annotations

import errno
import fcntl
import io
import os
import stat
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from rtagent.files import atomic_write as atomic_writing
from rtagent.files.atomic_write import atomic_write, remove_drafts

PREFIX = ".draft-"


def write(path: Path, *pieces: bytes) -> None:
    with atomic_write(path, PREFIX) as append:
        for piece in pieces:
            append(piece)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Path, int]]:
    """Every fsync and replace, in order: what it is called on, and how many bytes that has."""
    found: list[tuple[str, Path, int]] = []

    def recorded(name: str, of: Callable[..., str]) -> None:
        original = getattr(os, name)

        def record(*arguments: Any) -> Any:
            path = Path(of(*arguments))
            found.append((name, path, path.stat().st_size))
            return original(*arguments)

        monkeypatch.setattr(os, name, record)

    recorded("fsync", lambda descriptor: os.readlink(f"/proc/self/fd/{descriptor}"))
    recorded("replace", lambda draft, path: draft)
    return found


def test_what_was_appended_is_there(tmp_path: Path) -> None:
    write(tmp_path / "file", b"one", b"", memoryview(b" and two"))
    assert (tmp_path / "file").read_bytes() == b"one and two"
    assert os.listdir(tmp_path) == ["file"]


def test_the_content_is_on_the_disk_before_the_name_and_the_name_before_the_return(
    tmp_path: Path, calls: list[tuple[str, Path, int]]
) -> None:
    write(tmp_path / "file", b"12345", b"678")
    draft = calls[0][1]
    assert draft.name.startswith(PREFIX)
    assert calls[:2] == [("fsync", draft, 8), ("replace", draft, 8)]
    assert [each[:2] for each in calls[2:]] == [("fsync", tmp_path)]


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP])
def test_a_file_system_that_cannot_flush_a_folder_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    fsync = os.fsync

    def refuse_folders(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", refuse_folders)
    write(tmp_path / "file", b"content")
    assert (tmp_path / "file").read_bytes() == b"content"


def test_a_large_file_is_flushed_while_it_grows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or its writer would wait for a slow disk at the end, longer than a writer may be silent."""
    monkeypatch.setattr(atomic_writing, "FLUSH_BYTES", 8)
    flushed: list[int] = []
    monkeypatch.setattr(
        os, "fdatasync", lambda descriptor: flushed.append(os.fstat(descriptor).st_size)
    )
    write(tmp_path / "file", b"12345", b"678", b"9", b"0123456", b"78")
    assert flushed == [8, 16]
    assert (tmp_path / "file").read_bytes() == b"123456789012345678"


def test_a_write_that_takes_a_part_is_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Reluctant(io.FileIO):
        """A disk that takes three bytes at a time."""

        def write(self, content: Any) -> int:
            return super().write(content[:3])

    monkeypatch.setattr(os, "fdopen", lambda descriptor, mode, **_: Reluctant(descriptor, mode))
    write(tmp_path / "file", b"0123456789")
    assert (tmp_path / "file").read_bytes() == b"0123456789"


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_disk_that_refuses_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    write(tmp_path / "file", b"old")
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(os, failing, Mock(side_effect=full))
    with pytest.raises(OSError, match="No space"):
        write(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_block_that_raises_leaves_what_was_there(tmp_path: Path) -> None:
    write(tmp_path / "file", b"old")

    def interrupted() -> None:
        with atomic_write(tmp_path / "file", PREFIX) as append:
            append(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert (tmp_path / "file").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_drafts_of_the_dead_are_removed_and_those_of_the_living_kept(tmp_path: Path) -> None:
    (tmp_path / f"{PREFIX}dead").write_bytes(b"half")
    (tmp_path / "other").write_bytes(b"whole")
    with atomic_write(tmp_path / "a", PREFIX) as append:
        (draft,) = tmp_path.glob(f"{PREFIX}*")
        write(tmp_path / "b", b"2")
        append(b"1")
        assert draft.exists()
    assert {path.name for path in tmp_path.iterdir()} == {"a", "b", "other"}
    assert (tmp_path / "a").read_bytes() == b"1"


def test_no_other_writer_removes_a_draft_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = os.replace

    def replace_late(draft: str, path: Path) -> None:
        remove_drafts(tmp_path, PREFIX)
        replace(draft, path)

    monkeypatch.setattr(os, "replace", replace_late)
    write(tmp_path / "file", b"content")
    assert (tmp_path / "file").read_bytes() == b"content"


@pytest.mark.parametrize("removed", [True, False])
def test_a_draft_that_another_writer_took_for_one_of_the_dead_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, removed: bool
) -> None:
    """It is not locked yet; the other writer has removed it, or is about to."""
    make, made = tempfile.mkstemp, list[str]()
    opened = ExitStack()

    def make_slowly(**options: Any) -> tuple[int, str]:
        descriptor, draft = make(**options)
        if not made and removed:
            remove_drafts(tmp_path, PREFIX)
        elif not made:
            other = os.open(draft, os.O_RDONLY)
            opened.callback(os.close, other)
            fcntl.flock(other, fcntl.LOCK_EX)
        made.append(draft)
        return descriptor, draft

    monkeypatch.setattr(tempfile, "mkstemp", make_slowly)
    with opened:
        write(tmp_path / "file", b"content")
    assert (tmp_path / "file").read_bytes() == b"content"
    assert len(made) == 2
