"""The state directory: one daemon at a time, however the last one died."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from rtagent.errors import UserError
from rtagent.state_dir import StateDir
from tests.forked import Forked, eventually, forked_children


@pytest.fixture
def forked() -> Iterator[Forked]:
    with forked_children() as children:
        yield children


def test_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "a" / "state"
    held = StateDir(path)
    assert path.stat().st_mode & 0o777 == 0o700
    assert (path / "lock").stat().st_mode & 0o077 == 0
    held.release()


def test_second_daemon_is_refused(tmp_path: Path) -> None:
    held = StateDir(tmp_path)
    descriptors = len(os.listdir("/proc/self/fd"))
    with pytest.raises(UserError) as caught:
        StateDir(tmp_path)
    message = str(caught.value)
    assert f"the state directory {tmp_path} is held by another daemon" in message
    assert "--state-dir" in message
    assert "\n" not in message
    assert len(os.listdir("/proc/self/fd")) == descriptors
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


def test_announcement(tmp_path: Path) -> None:
    held = StateDir(tmp_path)
    for port in (1, 2):
        held.announce({"port": port, "pid": 17})
        found = json.loads((tmp_path / "daemon.json").read_text())
        assert found == {"port": port, "pid": 17}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["daemon.json", "lock"]
    held.release()
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


def test_an_announcement_that_cannot_be_written_is_refused_and_the_lock_let_go(
    tmp_path: Path,
) -> None:
    held = StateDir(tmp_path)
    (tmp_path / "daemon.json" / "taken").mkdir(parents=True)
    with pytest.raises(UserError, match=r"cannot write .*daemon\.json") as caught:
        held.announce({"port": 1})
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "daemon.new").exists()
    held.release()
    StateDir(tmp_path).release()


def test_release_without_an_announcement(tmp_path: Path) -> None:
    StateDir(tmp_path).release()
    StateDir(tmp_path).release()


def test_path_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(UserError, match="cannot use the state directory") as caught:
            StateDir(path)
        assert str(path) in str(caught.value)
        assert "--state-dir" in str(caught.value)
