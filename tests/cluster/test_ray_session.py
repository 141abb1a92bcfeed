"""How a node is started on this machine, without Ray."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rtagent.cluster import ray_session
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
