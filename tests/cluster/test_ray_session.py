"""How a node is started on this machine, without Ray."""

from __future__ import annotations

import errno
import os
import re
import signal
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from rtagent.cluster import ray_session
from rtagent.cluster.ray_checks import LocalNode, LostError
from rtagent.errors import UserError
from tests.conftest import eventually


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for Ray's files, which no other process waits to remove."""
    folder = tmp_path / "own"
    folder.mkdir()
    monkeypatch.setattr(ray_session, "end_descendants_with_this_process", lambda: folder)
    return folder


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file for a shell's script, which is run in place of Ray."""
    found = tmp_path / "ray"
    found.touch(0o755)
    monkeypatch.setattr(sys, "executable", str(found))
    return found


def test_a_node_has_a_folder_of_its_own(own_folder: Path, program: Path) -> None:
    # Two that started at one moment in Ray's common folder took the same sockets, and one died.
    program.write_text('#!/bin/sh\nprintf "%s " "$@"\nexit 1\n')
    with pytest.raises(UserError, match=f"--temp-dir={own_folder}"):
        ray_session._start_node("127.0.0.1:6379", {}, lambda: None)


def test_no_file_of_the_working_directory_is_taken_for_ray(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripts = tmp_path / "installed" / "ray" / "scripts" / "scripts.py"
    scripts.parent.mkdir(parents=True)
    (scripts.parents[1] / "__init__.py").touch()
    scripts.write_text("raise SystemExit('the installed one')")
    (tmp_path / "ray.py").write_text("raise SystemExit('of the working directory')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path / "installed")
    with pytest.raises(UserError, match="the installed one"):
        ray_session._start_node("127.0.0.1:6379", {}, lambda: None)


def test_a_node_that_does_not_start_is_given_up(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What it has started may still hold its output when it is killed.
    pid = tmp_path / "pid"
    program.write_text(f"#!/bin/sh\nsleep 3600 &\necho $! > {pid}\nwait\n")
    monkeypatch.setattr(ray_session, "NODE_S", 0.0)
    monkeypatch.setattr(ray_session, "LOOK_EVERY_S", 0.01)
    looks = []
    try:
        with pytest.raises(UserError, match="has not ended in 0 s"):
            ray_session._start_node("127.0.0.1:6379", {}, lambda: looks.append(eventually(
                lambda: pid.exists() and pid.read_text().strip(), "it runs"
            )))
        assert len(looks) == 1
    finally:
        os.kill(int(pid.read_text()), signal.SIGKILL)


def test_a_local_ray_that_does_not_start_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    # On a busy machine Ray raises an Exception of no type of its own.
    ray = Mock(exceptions=Mock(RayError=RuntimeError))
    ray.is_initialized.return_value = False
    ray.init.side_effect = Exception("The current node timed out\nduring startup.")
    monkeypatch.setattr(ray_session, "imported_ray", lambda: ray)
    monkeypatch.setattr(ray_session, "check_token", lambda _: None)
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    monkeypatch.setenv("RAY_AUTH_TOKEN", "t")
    said = "a local Ray cannot be started: The current node timed out during startup."
    with pytest.raises(UserError, match=re.escape(said)):
        ray_session.connect(None)
    ray.shutdown.assert_called_once_with()


@pytest.mark.parametrize(("resources", "folders", "starts"), [
    # A gateway joins by any node, and `rtagent learner` by the one that brings its resources.
    ({}, [], True), ({}, ["other"], False), ({"learner": 1.0}, [], True),
    ({"learner": 1.0}, ["other"], True), ({"learner": 1.0}, ["other", "own"], False),
])
def test_a_node_is_started_unless_it_lives(
    resources: dict[str, float], folders: list[str], starts: bool, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = {each: LocalNode("192.0.2.1", str(tmp_path / each)) for each in folders}
    started: list[dict[str, float]] = []
    monkeypatch.setattr(ray_session, "find_cluster", lambda _: here)
    monkeypatch.setattr(
        ray_session, "_start_node", lambda _, resources, __: started.append(resources)
    )
    ray_session._ensure_node("192.0.2.1:6379", resources, lambda: None)
    assert started == ([resources] if starts else [])


def test_a_machine_that_cannot_have_a_node_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    # It ended the gateway with a traceback, and the status did not say why nothing was learned.
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    monkeypatch.setattr(ray_session, "find_cluster", lambda _: {})
    monkeypatch.setattr(ray_session, "end_descendants_with_this_process", Mock(side_effect=full))
    with pytest.raises(UserError, match=r"no node can be started for h:1: No space left on device"):
        ray_session._ensure_node("h:1", {}, lambda: None)


def test_a_head_that_is_lost_while_torch_is_loaded_is_asked_for_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Ray ended `rtagent learner` with exit code 1 and a line of its log.
    ray, lost = Mock(), LostError("no Ray cluster at 192.0.2.1:6379: Connection refused")
    monkeypatch.setattr(ray_session, "imported_ray", lambda: ray)
    monkeypatch.setattr(ray_session, "find_joined", Mock(side_effect=lost))
    with pytest.raises(LostError, match="Connection refused"):
        ray_session.find_learner("rtagent", None)
    ray.cluster_resources.assert_not_called()
    ray.get_actor.assert_not_called()


def test_a_learner_that_somebody_starts_meanwhile_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    # `rtagent learner` took it for another one, and ended with its node.
    ray = Mock()
    ray.cluster_resources.return_value = {"learner": 1.0}
    ray.get_actor.side_effect = ValueError("no such actor")

    def started_now() -> dict[str, float]:
        ray.get_actor.side_effect = None
        return {}

    ray.available_resources.side_effect = started_now
    monkeypatch.setattr(ray_session, "imported_ray", lambda: ray)
    monkeypatch.setattr(ray_session.Watch, "check", lambda _: None)
    ray_session.find_learner("rtagent", None)
    ray.remote.assert_called_once()


def test_a_call_that_ends_after_the_time_was_taken_is_taken_in_the_next_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # On a busy machine `cluster.round_trip_ms` was 0.001: less than no time had been measured.
    ray = Mock(wait=lambda calls, **_: (calls, []))
    monkeypatch.setattr(ray_session, "imported_ray", lambda: ray)
    monkeypatch.setattr(ray_session, "Watch", Mock())
    learner = ray_session.LearnerHandle(Mock())
    ticket = learner.begin("status")
    assert learner.finished() == []
    learner.wait(0.0)
    assert [each for each, _ in learner.finished()] == [ticket]
    assert learner.finished() == []
