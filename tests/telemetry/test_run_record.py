"""What a run was made of, as it is written down."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from rtagent.config_sources import load_config, parse_config
from rtagent.telemetry import run_record


def test_a_run_can_be_repeated_from_its_record(tmp_path: Path) -> None:
    config = load_config(None, ["env.id=CartPole-v1", "run.seed=7"], {})
    run_record.write(tmp_path / "run", run_record.describe_run(config, ["rtagent", "serve"]))
    found = run_record.read(tmp_path / "run")
    assert found["command"] == ["rtagent", "serve"]
    assert parse_config(found["config"]) == config
    assert found["versions"]["numpy"] == np.__version__
    assert found["versions"]["torch"].startswith("2.")


def test_a_start_removes_the_folders_of_the_oldest_runs_but_never_its_own(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for number in range(5):
        (runs / f"{number:08x}").mkdir(parents=True)
        os.utime(runs / f"{number:08x}", (number, number))
    (runs / "the best one").mkdir()
    config = parse_config({"run": {"keep_runs": 3}})
    own = runs / f"{0:08x}"
    assert run_record.prune_runs(config, own) == 2
    assert sorted(path.name for path in runs.iterdir()) == [
        "00000000", "00000003", "00000004", "the best one",
    ]
    assert run_record.prune_runs(config, runs / "0000000f") == 1
    assert not own.exists()


def test_a_run_may_start_in_a_folder_that_has_been_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "removed"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    record = run_record.describe_run(load_config(None, [], {}), [])
    assert record["code"]["working_directory"] is None


def test_a_folder_without_a_record_has_an_empty_one(tmp_path: Path) -> None:
    assert run_record.read(tmp_path) == {}
    (tmp_path / run_record.RUN_RECORD).write_text("[1]")
    assert run_record.read(tmp_path) == {}


def committed(folder: Path, name: str) -> str:
    """Commit a file; the commit."""
    git(folder, "add", name)
    git(folder, "commit", "-qm", name)
    return git(folder, "rev-parse", "HEAD")


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    done = subprocess.run(
        ["git", "-C", folder, *who, *arguments], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def test_the_code_of_rtagent_is_not_that_of_the_checkout_that_it_is_installed_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a virtual environment in the folder of a project."""
    git(tmp_path, "init", "-q")
    for name in ("policy.py", "run_record.py"):
        (tmp_path / name).write_text("one")
    committed(tmp_path, "policy.py")
    monkeypatch.setattr(run_record, "__file__", str(tmp_path / "run_record.py"))
    config = load_config(None, [], {})
    assert run_record.describe_run(config, [])["code"]["rtagent"] is None
    own = committed(tmp_path, "run_record.py")
    found = run_record.describe_run(config, [])["code"]["rtagent"]
    assert found == {"commit": own, "modified": False}


def test_commit_and_changes_of_a_checkout(tmp_path: Path) -> None:
    assert run_record.git_state(tmp_path) is None
    git(tmp_path, "init", "-q")
    (tmp_path / "policy.py").write_text("one")
    commit = committed(tmp_path, "policy.py")
    assert run_record.git_state(tmp_path) == {"commit": commit, "modified": False}
    (tmp_path / "policy.py").write_text("two")
    assert run_record.git_state(tmp_path) == {"commit": commit, "modified": True}
    (tmp_path / "notes").write_text("one")
    second = committed(tmp_path, "notes")
    (tmp_path / "notes").write_text("two")
    found = [run_record.git_state(tmp_path, name) for name in ("notes", "policy.py", "nothing")]
    assert found[2] == {"commit": second, "modified": False}
    for state in found[:2]:
        assert (state["commit"], state["modified"]) == (second, True)
    assert found[0] != found[1]
    (tmp_path / "policy.py").write_bytes(b"\xff not UTF-8")
    assert run_record.git_state(tmp_path, "policy.py") not in (None, found[1])
