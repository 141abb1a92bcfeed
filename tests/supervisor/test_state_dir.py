"""The state directory: one daemon at a time, however the last one died."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import threading
import time
from pathlib import Path
from unittest.mock import Mock

import pytest

from rtagent.errors import UserError
from rtagent.supervisor import state_dir
from rtagent.supervisor.state_dir import StateDir, is_held, read_private
from tests.conftest import open_descriptors
from tests.forked import Forked, eventually
from tests.refused import one_line


def test_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "a" / "state"
    held = StateDir(path)
    assert path.stat().st_mode & 0o777 == 0o700
    assert (path / "lock").stat().st_mode & 0o077 == 0
    held.release()


def test_second_daemon_is_refused(tmp_path: Path) -> None:
    held = StateDir(tmp_path)
    descriptors = open_descriptors()
    with one_line(f"the state directory {tmp_path} is held by another daemon", "--state-dir"):
        StateDir(tmp_path)
    assert open_descriptors().items() <= descriptors.items()
    held.release()
    StateDir(tmp_path).release()


@pytest.mark.process
def test_free_after_the_daemon_is_killed(tmp_path: Path, forked: Forked) -> None:
    def hold() -> None:
        StateDir(tmp_path).announce({"port": 1})
        signal.pause()

    pid = forked.start(hold)
    assert eventually((tmp_path / "daemon.json").exists)
    with pytest.raises(UserError, match="held by another daemon"):
        StateDir(tmp_path)
    # The refused one must not take away what belongs to the other.
    assert (tmp_path / "daemon.json").exists()
    assert forked.kill(pid) == -signal.SIGKILL
    held = StateDir(tmp_path)
    held.release()


@pytest.mark.process
def test_free_although_a_fork_of_the_program_lives_on(tmp_path: Path, forked: Forked) -> None:
    held = StateDir(tmp_path)
    forked.start(signal.pause)
    held.release()
    StateDir(tmp_path).release()


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
    monkeypatch.setattr(state_dir, "_lock", Mock(side_effect=refused))
    with pytest.raises(UserError, match="cannot be locked: No locks available; choose another"):
        StateDir(tmp_path)


def test_announcement(tmp_path: Path) -> None:
    held = StateDir(tmp_path)
    for port in (1, 2):
        held.announce({"port": port, "pid": 17})
        found = json.loads((tmp_path / "daemon.json").read_text())
        assert found == {"port": port, "pid": 17}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["daemon.json", "lock"]
    held.release()
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


@pytest.mark.parametrize("taken", ["folder", "lock"])
def test_the_note_of_the_daemon_that_has_the_place_now_stays(tmp_path: Path, taken: str) -> None:
    path = tmp_path / "state"
    first = StateDir(path)
    first.announce({"pid": 1})
    if taken == "folder":
        path.rename(tmp_path / "moved")
    else:
        (path / "lock").unlink()
    second = StateDir(path)
    second.announce({"pid": 2})
    first.release()
    assert json.loads((path / "daemon.json").read_text()) == {"pid": 2}
    second.release()
    assert not (path / "daemon.json").exists()


@pytest.mark.parametrize("taken", ["folder", "lock"])
def test_a_place_that_was_moved_away_is_held_again(tmp_path: Path, taken: str) -> None:
    path = tmp_path / "state"
    held = StateDir(path)
    held.keep()
    descriptors = open_descriptors()
    if taken == "folder":
        path.rename(tmp_path / "moved")
    else:
        (path / "lock").unlink()
    held.keep()
    with one_line("held by another daemon"):
        StateDir(path)
    assert len(open_descriptors()) <= len(descriptors)
    held.release()
    held.keep()
    StateDir(path).release()


def test_a_run_whose_place_another_daemon_has_taken_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_dir, "WATCH_EVERY_S", 0.001)
    path, told = tmp_path / "state", list[UserError]()
    first = StateDir(path)
    path.rename(tmp_path / "moved")
    second = StateDir(path)
    first.watch(told.append)
    assert eventually(lambda: bool(told))
    first.release()
    assert "held by another daemon" in str(told[0])
    assert len(told) == 1
    second.release()


def test_a_place_that_cannot_be_made_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(state_dir, "WATCH_EVERY_S", 0.001)
    path, told = tmp_path / "state", list[UserError]()
    held = StateDir(path)
    path.rename(tmp_path / "moved")
    path.write_text("a file")
    held.watch(told.append)
    assert eventually(lambda: "it is no folder" in caplog.text)
    path.unlink()
    assert eventually(lambda: "is made anew" in caplog.text)
    held.release()
    assert told == []
    assert caplog.text.count("it is no folder") == 1


def test_a_disk_that_hangs_does_not_keep_a_run_from_ending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_dir, "WATCH_EVERY_S", 0.001)
    monkeypatch.setattr(state_dir, "RELEASE_LIMIT_S", 0.05)
    hangs, answers = threading.Event(), threading.Event()

    def look(self: StateDir) -> bool:
        hangs.set()
        return answers.wait(10.0)

    monkeypatch.setattr(StateDir, "_is_in_place", look)
    held = StateDir(tmp_path)
    held.announce({"port": 1})
    held.watch(lambda error: None)
    assert hangs.wait(60.0)
    held.release()
    assert not answers.is_set()
    with one_line("held by another daemon"):
        StateDir(tmp_path)
    answers.set()
    assert eventually(lambda: not is_held(tmp_path))
    assert not (tmp_path / "daemon.json").exists()


def test_an_announcement_that_cannot_be_written_is_refused_and_the_lock_let_go(
    tmp_path: Path,
) -> None:
    held = StateDir(tmp_path)
    (tmp_path / "daemon.json" / "taken").mkdir(parents=True)
    with one_line(r"cannot write .*daemon\.json"):
        held.announce({"port": 1})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["daemon.json", "lock"]
    held.release()
    StateDir(tmp_path).release()


def test_the_note_is_for_its_owner_alone_and_written_over_no_link(tmp_path: Path) -> None:
    victim = tmp_path.parent / f"{tmp_path.name}-victim"
    victim.write_text("precious")
    held = StateDir(tmp_path)
    for name in ("daemon.new", "daemon.json"):
        (tmp_path / name).symlink_to(victim)
    held.announce({"port": 1})
    assert victim.read_text() == "precious"
    assert not (tmp_path / "daemon.json").is_symlink()
    assert (tmp_path / "daemon.json").stat().st_mode & 0o777 == 0o600
    held.release()


@pytest.mark.parametrize("exists", [True, False])
def test_a_lock_that_is_a_link_is_refused(tmp_path: Path, exists: bool) -> None:
    victim = tmp_path.parent / f"{tmp_path.name}-victim"
    if exists:
        victim.write_text("precious")
    (tmp_path / "lock").symlink_to(victim)
    with pytest.raises(UserError, match="its lock is a link"):
        StateDir(tmp_path)
    assert victim.exists() == exists


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770, 0o702])
def test_a_directory_that_others_can_write_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "state"
    path.mkdir()
    path.chmod(mode)
    with pytest.raises(UserError, match=r"others can write into .*chmod go-w"):
        StateDir(path)
    assert list(path.iterdir()) == []
    path.chmod(0o755)
    StateDir(path).release()


def test_a_directory_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(UserError, match="belongs to another user"):
        StateDir(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_private_file_is_read_if_its_owner_has_put_it_there(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("x" * 9000)
    assert read_private(path, "go away") == b"x" * 4096
    for mode in (0o644, 0o640, 0o604):
        path.chmod(mode)
        with pytest.raises(UserError, match=rf"open to other users \(mode 0{mode:o}\): go away"):
            read_private(path, "go away", secret=True)
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(UserError, match="is a link: go away"):
        read_private(tmp_path / "link", "go away")
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(UserError, match="is not a file: go away"):
        read_private(tmp_path / "fifo", "go away")
    with pytest.raises(FileNotFoundError):
        read_private(tmp_path / "nothing", "go away")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_than_its_directory_s_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("x" * 64)
    os.chown(path, 12345, -1)
    with pytest.raises(UserError, match=r"belongs to another user \(uid 12345\): go away"):
        read_private(path, "go away")
    os.chown(tmp_path, 12345, -1)
    assert read_private(path, "go away") == b"x" * 64


def test_path_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path, why in (("file", "it is no folder"), ("file/below", "Not a directory")):
        path = tmp_path / path
        with one_line(f"cannot use the state directory .*: {why}", str(path), "--state-dir"):
            StateDir(path)


def test_a_pipe_in_place_of_the_lock_keeps_nobody_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "lock")
    assert is_held(tmp_path) is False


def test_the_lock_says_whether_a_directory_is_held(tmp_path: Path) -> None:
    assert is_held(tmp_path) is None
    held = StateDir(tmp_path)
    assert is_held(tmp_path) is True
    held.release()
    assert is_held(tmp_path) is False
    # Asking does not keep a daemon out.
    StateDir(tmp_path).release()


def test_asking_whether_it_is_held_does_not_keep_a_daemon_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    StateDir(tmp_path).release()
    descriptor = os.open(tmp_path / "lock", os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    # The other process lets go while the daemon waits to try again.
    monkeypatch.setattr(time, "sleep", lambda seconds: os.close(descriptor))
    StateDir(tmp_path).release()
