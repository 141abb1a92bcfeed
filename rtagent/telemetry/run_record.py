"""The record of a run, so that it can be repeated: configuration, versions, state of the code.

Written once into the folder of the run, when nothing can be refused any more; each checkpoint
carries a copy.
"""

from __future__ import annotations

import hashlib
import json
import platform
import subprocess
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rtagent.config import Config
from rtagent.errors import reason_of
from rtagent.files.atomic_write import atomic_write
from rtagent.files.pruning import MIB, RUN_RECORD, next_number, prune, run_folders

PACKAGES = ("rtagent", "torch", "numpy", "gymnasium", "stable-retro", "safetensors")
GIT_LIMIT_S = 5.0


def begin_run(
    config: Config, folder: Path, command: Sequence[str]
) -> list[tuple[str, dict[str, Any]]]:
    """Make room for the folder of a run, and write its record.

    Returns:
        Kinds and details of events to report.
    """
    record = {"number": next_number(folder.parent), **describe_run(config, command)}
    removed = prune_runs(config, folder)
    events: list[tuple[str, dict[str, Any]]] = [("pruned", {"runs": removed})] if removed else []
    try:
        write(folder, record)
    except OSError as error:
        events.append(("run_record_failed", {"reason": reason_of(error)}))
    return events


def prune_runs(config: Config, run_dir: Path) -> int:
    """Remove the folders of the oldest runs, but never this run's own; returns how many."""
    earlier = [path for path in run_folders(run_dir.parent) if path != run_dir]
    return len(prune([run_dir, *earlier], config.run.keep_runs, config.run.runs_mb * MIB))


def describe_run(config: Config, command: Sequence[str]) -> dict[str, Any]:
    """The record of a run: the configuration at its start, versions, code, command."""
    return {
        "config": config.model_dump(mode="json"),
        "versions": {
            "python": platform.python_version(),
            "system": platform.platform(),
            **{name: _version(name) for name in PACKAGES},
        },
        "code": {
            "rtagent": _own_state(Path(__file__)),
            # Not `Path.cwd()`, which raises an error where that has been removed.
            "working_directory": git_state(Path()),
        },
        "command": list(command),
    }


def write(folder: Path, record: dict[str, Any]) -> None:
    """Write the record of a run into its folder.

    Raises:
        OSError: it cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_write(folder / RUN_RECORD, ".run-") as put:
        put(json.dumps(record, indent=2).encode())


def read(folder: Path) -> dict[str, Any]:
    """The record in the folder of a run; {} if there is none that can be read."""
    try:
        found = json.loads((folder / RUN_RECORD).read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _own_state(file: Path) -> dict[str, Any] | None:
    """The `git_state` of the checkout that a file belongs to; None where it is installed.

    The environment that it is installed into may lie in somebody else's checkout.
    """
    tracked = _git(file.parent, "ls-files", "--error-unmatch", "--", file.name)
    return None if tracked is None else git_state(file.parent)


def git_state(folder: Path, *within: str) -> dict[str, Any] | None:
    """Commit of a checkout, and whether files that git tracks differ from it.

    Args:
        folder: in the checkout.
        within: paths from `folder`: only their files count, and how they differ is told, too.

    Returns:
        {"commit", "modified"}, and if files `within` differ "changes", a hash of the differences.
        None where there is no checkout, or no git.
    """
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return None
    if within:
        plain = ("--binary", "--no-ext-diff", "--no-textconv", "--no-color")
        changes = _git(folder, "diff", *plain, "HEAD", "--", *within)
    else:
        changes = _git(folder, "status", "--porcelain", "--untracked-files=no")
    state = {"commit": commit, "modified": None if changes is None else bool(changes)}
    if within and changes:
        digest = hashlib.sha256(changes.encode(errors="surrogateescape"))
        return state | {"changes": digest.hexdigest()}
    return state


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), "--no-optional-locks", *arguments], stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=GIT_LIMIT_S, check=True,
            errors="surrogateescape",
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
