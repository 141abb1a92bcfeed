"""Checkpoints: whole or not there, found corrupt when they are, refused where they do not fit."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rtagent import checkpoint as checkpoints
from rtagent.checkpoint import Checkpoint, CheckpointError, Counters, Signature

SIGNATURE = Signature("Game-v0", "nature", "4x84x84 uint8", "Discrete(3)")


def make(updates: int = 7, size: int = 1000) -> Checkpoint:
    rng = np.random.default_rng(updates)
    tensors = {
        "online.w": rng.normal(size=(size, 2)).astype(np.float32),
        "online.count": np.array(updates),
        "step.w": np.float32([updates]),
    }
    return Checkpoint(SIGNATURE, Counters(updates, updates * 32, updates // 10), tensors)


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    saved = make(123)
    path = checkpoints.save(tmp_path / "new", saved)
    assert path.name == "checkpoint-000001-000000000123.safetensors"
    loaded = checkpoints.load(path)
    assert (loaded.signature, loaded.counters) == (saved.signature, saved.counters)
    assert set(loaded.tensors) == set(saved.tensors)
    for name, values in saved.tensors.items():
        np.testing.assert_array_equal(loaded.tensors[name], values)
        assert loaded.tensors[name].shape == values.shape


def test_the_last_three_stay(tmp_path: Path) -> None:
    assert checkpoints.newest(tmp_path / "absent") is None
    for updates in (5, 50, 1_000_000_000_000, 500):
        checkpoints.save(tmp_path, make(updates, 10))
    newest = checkpoints.newest(tmp_path)
    assert newest is not None
    assert checkpoints.load(newest).counters.updates == 500
    found = [each["updates"] for each in checkpoints.listing(tmp_path)]
    assert found == [500, 1_000_000_000_000, 50]


def test_the_newest_is_the_last_one_written_whatever_the_wall_clock_said(tmp_path: Path) -> None:
    hour = 3600
    for updates, time in ((10, 10 * hour), (20, 11 * hour), (30, 9 * hour), (40, 0)):
        os.utime(checkpoints.save(tmp_path, make(updates, 10)), (time, time))
        newest = checkpoints.newest(tmp_path)
        assert newest is not None
        assert checkpoints.load(newest).counters.updates == updates
    assert [each["updates"] for each in checkpoints.listing(tmp_path)] == [40, 30, 20]


def test_the_same_updates_twice_are_two_checkpoints(tmp_path: Path) -> None:
    first, second = (checkpoints.save(tmp_path, make(5, 10)) for _ in range(2))
    assert first != second
    assert checkpoints.newest(tmp_path) == second


def test_checkpoints_of_an_older_version_come_before_the_numbered_ones(tmp_path: Path) -> None:
    for updates in (700, 900):
        saved = checkpoints.save(tmp_path, make(updates, 10))
        saved.rename(tmp_path / f"checkpoint-{updates:012d}.safetensors")
    old = checkpoints.newest(tmp_path)
    assert old is not None
    assert checkpoints.load(old).counters.updates == 900
    checkpoints.save(tmp_path, make(5, 10))
    assert [each["updates"] for each in checkpoints.listing(tmp_path)] == [5, 900, 700]


def test_the_first_checkpoint_of_a_new_start_stays(tmp_path: Path) -> None:
    for updates in (1000, 2000, 3000, 10):
        last = checkpoints.save(tmp_path, make(updates, 10))
    assert last.exists()
    assert len(list(tmp_path.iterdir())) == 3


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    near_miss = "checkpoint-000000000009.safetensors.bak"
    for name in ("checkpoint-1.safetensors", "notes.txt", near_miss):
        (tmp_path / name).touch()
    assert checkpoints.newest(tmp_path) is None
    checkpoints.save(tmp_path, make(), keep=1)
    assert len(list(tmp_path.iterdir())) == 4


def test_every_flipped_byte_is_found(tmp_path: Path) -> None:
    path = checkpoints.save(tmp_path, make(size=20))
    whole = path.read_bytes()
    for at in range(len(whole)):
        content = bytearray(whole)
        content[at] ^= 0x10
        path.write_bytes(content)
        with pytest.raises(CheckpointError) as caught:
            checkpoints.load(path)
        assert "\n" not in str(caught.value)
        assert "run.resume=false" in str(caught.value)


@pytest.mark.parametrize("size", [0, 5, 300, 8000])
def test_a_short_file_is_corrupt(tmp_path: Path, size: int) -> None:
    path = checkpoints.save(tmp_path, make())
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(CheckpointError, match="is corrupt"):
        checkpoints.load(path)


def test_a_safetensors_file_of_somebody_else_is_refused(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    path = tmp_path / "checkpoint-000000000001.safetensors"
    save_file({"a": np.zeros(3)}, str(path))
    with pytest.raises(CheckpointError, match="is corrupt"):
        checkpoints.load(path)


def test_a_later_format_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "FORMAT", 2)
    path = checkpoints.save(tmp_path, make())
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match="has format 2"):
        checkpoints.load(path)


def test_a_checkpoint_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is gone"):
        checkpoints.load(tmp_path / "checkpoint-000000000001.safetensors")


@pytest.mark.parametrize(
    ("field", "other"), [("environment", "Other-v0"), ("network", "mlp k=2"), ("action", "Box(2)")]
)
def test_a_checkpoint_of_something_else_is_refused(
    tmp_path: Path, field: str, other: str
) -> None:
    path = checkpoints.save(tmp_path, make())
    assert checkpoints.check(path, SIGNATURE).counters.updates == 7
    with pytest.raises(CheckpointError, match=r"belongs to the .*--state-dir") as caught:
        checkpoints.check(path, replace(SIGNATURE, **{field: other}))
    assert other in str(caught.value)
    assert getattr(SIGNATURE, field) in str(caught.value)


def test_a_full_disk_leaves_the_last_good_one(tmp_path: Path) -> None:
    good = checkpoints.save(tmp_path, make(1))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        with pytest.raises(CheckpointError, match="cannot write"):
            checkpoints.save(tmp_path, make(2, 100_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == [good]
    assert checkpoints.load(good).counters.updates == 1


def test_a_crash_before_the_rename_leaves_the_last_good_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = checkpoints.save(tmp_path, make(1))

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", die)
    with pytest.raises(KeyboardInterrupt):
        checkpoints.save(tmp_path, make(2))
    assert list(tmp_path.iterdir()) == [good]


def test_the_heartbeat_goes_on_while_writing(tmp_path: Path) -> None:
    beats: list[int] = []
    size = 2 * checkpoints.WRITE_STEP // 8
    checkpoints.save(tmp_path, make(1, size), progress=lambda: beats.append(1))
    assert len(beats) >= 4


def test_torch_is_not_needed(tmp_path: Path) -> None:
    path = checkpoints.save(tmp_path, make())
    code = (
        "import json, sys; from pathlib import Path; from rtagent import checkpoint as c;"
        "found = c.load(c.newest(Path(sys.argv[1])));"
        "print(json.dumps([found.counters.updates, 'torch' in sys.modules]))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code, str(path.parent)], capture_output=True, text=True, check=True
    )
    assert json.loads(answer.stdout) == [7, False]
