"""How a node is started on this machine, without Ray."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rtagent.cluster import ray_session
from rtagent.cluster.ray_checks import Cluster, LocalNode
from rtagent.errors import UserError


def test_a_node_has_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Two that started at one moment in Ray's common folder took the same sockets, and one died.
    ray = tmp_path / "ray"
    ray.write_text('#!/bin/sh\nprintf "%s " "$@"\nexit 1\n')
    ray.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(ray))
    monkeypatch.setattr(ray_session, "end_descendants_with_this_process", lambda: tmp_path)
    with pytest.raises(UserError, match=f"--temp-dir={tmp_path}"):
        ray_session._start_node("127.0.0.1:6379", {}, lambda: None)


@pytest.mark.parametrize(
    ("resources", "folders", "starts"),
    [
        # A gateway joins by any node, and `rtagent learner` by the one that brings its resources.
        ({}, [], True), ({}, ["other"], False), ({"learner": 1.0}, [], True),
        ({"learner": 1.0}, ["other"], True), ({"learner": 1.0}, ["other", "own"], False),
    ],
)
def test_a_node_is_started_unless_it_lives(
    resources: dict[str, float], folders: list[str], starts: bool, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = {each: LocalNode("192.0.2.1", str(tmp_path / each)) for each in folders}
    started: list[dict[str, float]] = []
    monkeypatch.setattr(ray_session, "find_cluster", lambda _: Cluster("a", here))
    monkeypatch.setattr(
        ray_session, "end_descendants_with_this_process", lambda: tmp_path / "own"
    )
    monkeypatch.setattr(
        ray_session, "_start_node", lambda _, resources, __: started.append(resources)
    )
    ray_session._ensure_node("192.0.2.1:6379", resources, lambda: None)
    assert started == ([resources] if starts else [])
