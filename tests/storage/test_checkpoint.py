"""Checkpoints: whole or not there, found corrupt when they are, refused where they do not fit."""

from __future__ import annotations

import json
import math
import os
import struct
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from safetensors.numpy import save_file

from rtagent.storage import checkpoint as checkpoints
from rtagent.storage.checkpoint import (
    BEST,
    Checkpoint,
    CheckpointError,
    CorruptCheckpoint,
    Counters,
    Score,
)
from rtagent.storage.signature import Signature
from tests.limited import limited
from tests.refused import one_line
from tests.storage.damaged import each_byte_damaged

SIGNATURE = Signature("Game-v0", "nature", "4x84x84 uint8", "Discrete(3)")


def make(updates: int = 7, size: int = 1000) -> Checkpoint:
    rng = np.random.default_rng(updates)
    tensors = {
        "online.w": rng.normal(size=(size, 2)).astype(np.float32),
        "online.count": np.array(updates),
        "step.w": np.float32([updates]),
    }
    return Checkpoint(SIGNATURE, Counters(updates, updates * 32, updates // 10), tensors)


def listed(folder: Path) -> list[int]:
    """Updates of the checkpoints there, newest first; the newest one is the first of them."""
    found = [each["updates"] for each in checkpoints.listing(folder)]
    assert checkpoints.load(checkpoints.newest(folder)).counters.updates == found[0]
    return found


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
    # The last one is that of a new start.
    for updates in (5, 50, 1_000_000_000_000, 10):
        checkpoints.save(tmp_path, make(updates, 10))
    assert listed(tmp_path) == [10, 1_000_000_000_000, 50]
    assert len(list(tmp_path.iterdir())) == 3


def test_the_newest_is_the_last_one_written_whatever_the_wall_clock_said(tmp_path: Path) -> None:
    hour = 3600
    for updates, time in ((10, 10 * hour), (20, 11 * hour), (30, 9 * hour), (40, 0)):
        os.utime(checkpoints.save(tmp_path, make(updates, 10)), (time, time))
        assert listed(tmp_path)[0] == updates
    assert listed(tmp_path) == [40, 30, 20]


def test_the_same_updates_twice_are_two_checkpoints(tmp_path: Path) -> None:
    first, second = (checkpoints.save(tmp_path, make(5, 10)) for _ in range(2))
    assert first != second
    assert checkpoints.newest(tmp_path) == second


def test_checkpoints_of_an_older_version_come_before_the_numbered_ones(tmp_path: Path) -> None:
    for updates in (700, 900):
        saved = checkpoints.save(tmp_path, make(updates, 10))
        saved.rename(tmp_path / f"checkpoint-{updates:012d}.safetensors")
    assert listed(tmp_path) == [900, 700]
    checkpoints.save(tmp_path, make(5, 10))
    assert listed(tmp_path) == [5, 900, 700]


def test_checkpoints_go_by_size_but_never_the_newest(tmp_path: Path) -> None:
    first = checkpoints.save(tmp_path, make(1, 10))
    size = first.stat().st_size
    checkpoints.save(tmp_path, make(2, 10), keep=9, most_bytes=2 * size + 100)
    checkpoints.save(tmp_path, make(3, 10), keep=9, most_bytes=2 * size + 100)
    assert listed(tmp_path) == [3, 2]
    checkpoints.save(tmp_path, make(4, 10), keep=9, most_bytes=1)
    assert listed(tmp_path) == [4]


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    near_miss = "checkpoint-000000000009.safetensors.bak"
    for name in ("checkpoint-1.safetensors", "notes.txt", near_miss):
        (tmp_path / name).touch()
    assert checkpoints.newest(tmp_path) is None
    checkpoints.save(tmp_path, make(), keep=1)
    assert len(list(tmp_path.iterdir())) == 4


def test_every_flipped_byte_is_found(tmp_path: Path) -> None:
    path = checkpoints.save(tmp_path, make(size=20))
    for _ in each_byte_damaged(path):
        with one_line(error=CheckpointError):
            checkpoints.load(path)


def written(path: Path, about: str, header: dict[str, object]) -> Path:
    """A safetensors file with a right checksum over its metadata and no tensors."""
    crc = f"{checkpoints.checksum(about, {}):08x}"
    text = json.dumps({"__metadata__": {"rtagent": about, "crc32": crc}, **header}).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text)
    return path


def test_a_pipe_a_device_and_a_folder_are_no_checkpoints(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "pipe", tmp_path / "folder", Path("/dev/zero")):
        with pytest.raises(CheckpointError, match=r"not a regular file|Is a directory"):
            checkpoints.load(path)


def test_a_folder_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    for name, reason in (("file", "Not a directory"), ("loop", "Too many levels of symbolic")):
        folder = tmp_path / name
        for ask in (
            checkpoints.listing, checkpoints.newest,
            lambda each: checkpoints.newest_usable(each, SIGNATURE),
        ):
            with pytest.raises(CheckpointError, match=rf"{folder}: {reason}"):
                ask(folder)


def test_a_file_of_holes_is_not_read_into_memory(tmp_path: Path) -> None:
    tensor = {"dtype": "F32", "shape": [10**12], "data_offsets": [0, 4 * 10**12]}
    path = written(tmp_path / "sparse.safetensors", "{}", {"online.w": tensor})
    os.truncate(path, path.stat().st_size + 4 * 10**12)
    with pytest.raises(CheckpointError, match="are the most"):
        checkpoints.load(path)


@pytest.mark.parametrize("dtype", ["F8_E5M2", "F8_E4M3"])
def test_tensors_that_numpy_cannot_read_are_one_line(tmp_path: Path, dtype: str) -> None:
    tensor = {"dtype": dtype, "shape": [0], "data_offsets": [0, 0]}
    with pytest.raises(CheckpointError, match=r"is corrupt \((?!wrong checksum)"):
        checkpoints.load(written(tmp_path / "x.safetensors", "{}", {"online.w": tensor}))


@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.complex64])
def test_tensors_of_other_types_are_no_weights(tmp_path: Path, dtype: type) -> None:
    tensors = {"online.w": np.zeros(3, dtype)}
    path = checkpoints.save(tmp_path, Checkpoint(SIGNATURE, Counters(), tensors))
    reason = rf"tensor 'online\.w' is of type {dtype.__name__}"
    with pytest.raises(CheckpointError, match=reason):
        checkpoints.load(path)


@pytest.mark.parametrize("about", [
    "[" * 100_000, "5", "[]", '{"format": []}', '{"format": 1}',
    '{"format": 1, "signature": [], "counters": {}}',
    '{"format": 1, "signature": {"environment": 1, "network": "", "observation": "", '
    '"action": ""}, "counters": {}}',
    *(
        '{"format": 1, "signature": {"environment": "", "network": "", "observation": "", '
        f'"action": ""}}, "counters": {{"updates": {updates}}}}}'
        for updates in ("-1", '"x"', "1e999", "1e30", str(2**63))
    ),
], ids=lambda about: about[-40:])
def test_metadata_that_nobody_wrote_are_one_line(tmp_path: Path, about: str) -> None:
    with one_line(error=CheckpointError):
        checkpoints.load(written(tmp_path / "x.safetensors", about, {}))


@pytest.mark.parametrize("size", [0, 5, 300, 8000])
def test_a_short_file_is_corrupt(tmp_path: Path, size: int) -> None:
    path = checkpoints.save(tmp_path, make())
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(CheckpointError, match="is corrupt"):
        checkpoints.load(path)


def test_files_of_something_else_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    with pytest.raises(CheckpointError, match="is gone"):
        checkpoints.load(path)
    save_file({"a": np.zeros(3)}, path)
    with pytest.raises(CheckpointError, match="is corrupt"):
        checkpoints.load(path)
    with pytest.raises(CheckpointError, match=r"has format 2.*: use the version that wrote it"):
        checkpoints.load(written(path, '{"format": 2}', {}))


@pytest.mark.parametrize(
    ("field", "other"), [("environment", "Other-v0"), ("network", "mlp k=2"), ("action", "Box(2)")]
)
def test_a_checkpoint_of_something_else_is_refused(tmp_path: Path, field: str, other: str) -> None:
    path = checkpoints.save(tmp_path, make())
    assert checkpoints.check(path, SIGNATURE).counters.updates == 7
    with pytest.raises(CheckpointError, match="belongs to the") as caught:
        checkpoints.check(path, replace(SIGNATURE, **{field: other}))
    assert other in str(caught.value)
    assert getattr(SIGNATURE, field) in str(caught.value)


def test_a_full_disk_leaves_the_last_good_one(tmp_path: Path) -> None:
    good = checkpoints.save(tmp_path, make(1))
    full = pytest.raises(CheckpointError, match="cannot write")
    with limited("FSIZE", 10_000), full:
        checkpoints.save(tmp_path, make(2, 100_000))
    assert list(tmp_path.iterdir()) == [good]
    assert checkpoints.load(good).counters.updates == 1


def test_the_heartbeat_goes_on_while_writing(tmp_path: Path) -> None:
    beats: list[int] = []
    size = 2 * checkpoints.WRITE_STEP // 8
    checkpoints.save(tmp_path, make(1, size), progress=lambda: beats.append(1))
    assert len(beats) >= 4


def test_torch_is_not_needed(tmp_path: Path) -> None:
    path = checkpoints.save(tmp_path, make())
    code = (
        "import json, sys; from pathlib import Path; from rtagent.storage import checkpoint as c;"
        "import rtagent.storage.replay_restoring, rtagent.storage.replay_snapshot;"
        "found = c.load(c.newest(Path(sys.argv[1])));"
        "print(json.dumps([found.counters.updates, 'torch' in sys.modules]))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code, str(path.parent)], capture_output=True, text=True, check=True
    )
    assert json.loads(answer.stdout) == [7, False]


# ---- the best one


def score(mean_return: float, kind: str = "live") -> Score:
    return Score(mean_return, 20, kind)


def test_score_and_record_of_the_run_come_back(tmp_path: Path) -> None:
    saved = replace(make(), score=score(1.5), run={"versions": {"torch": "2.6"}})
    loaded = checkpoints.load(checkpoints.save(tmp_path, saved))
    assert loaded.score == saved.score
    assert loaded.run == saved.run


def test_the_best_checkpoint_outlives_its_number(tmp_path: Path) -> None:
    returns = [1.0, 9.0, 3.0, 4.0, 5.0, 6.0]
    for updates, value in enumerate(returns):
        checkpoints.save(tmp_path, replace(make(updates, 10), score=score(value)), keep=2)
    assert listed(tmp_path) == [5, 4]
    assert not any(each["best"] for each in checkpoints.listing(tmp_path))
    assert checkpoints.load(tmp_path / BEST).counters.updates == 1
    checkpoints.save(tmp_path, replace(make(99, 10), score=score(9.0)), keep=2)
    assert [each["best"] for each in checkpoints.listing(tmp_path)] == [True, False]
    assert checkpoints.load(tmp_path / BEST).counters.updates == 99


def test_where_there_are_no_second_names_the_best_is_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", Mock(side_effect=PermissionError))
    for updates, value in enumerate([1.0, 9.0, 3.0, 4.0]):
        checkpoints.save(tmp_path, replace(make(updates, 10), score=score(value)), keep=2)
        marked = [each["updates"] for each in checkpoints.listing(tmp_path) if each["best"]]
        assert marked == [[0], [1], [1], []][updates]
    assert listed(tmp_path) == [3, 2]
    assert checkpoints.load(tmp_path / BEST).counters.updates == 1
    assert len(list(tmp_path.iterdir())) == 3, "no draft is left"


def test_the_oldest_go_although_the_best_cannot_be_named(tmp_path: Path) -> None:
    (tmp_path / BEST / "in the way").mkdir(parents=True)
    for updates in range(4):
        # It said that no checkpoint could be written.
        with pytest.raises(CheckpointError, match=rf"-{updates:012d}.* is written, but .*{BEST}"):
            checkpoints.save(tmp_path, replace(make(updates, 10), score=score(updates)), keep=2)
    assert listed(tmp_path) == [3, 2]


def test_a_second_name_that_a_killed_writer_has_left_goes(tmp_path: Path) -> None:
    """It would keep the bytes of a checkpoint that is removed."""
    left = tmp_path / ".best-checkpoint-000001-000000000001.safetensors"
    os.link(checkpoints.save(tmp_path, make(0, 10)), left)
    for updates in (1, 2):
        checkpoints.save(tmp_path, replace(make(updates, 10), score=score(updates)))
    assert not left.exists()


def test_an_evaluation_says_more_than_live_episodes(tmp_path: Path) -> None:
    checkpoints.save(tmp_path, make())
    assert not (tmp_path / BEST).exists(), "without a score none is the best"
    for updates, each in enumerate([score(50.0), score(5.0, "evaluation"), score(60.0)]):
        checkpoints.save(tmp_path, replace(make(updates, 10), score=each))
    assert checkpoints.load(tmp_path / BEST).counters.updates == 1


def test_the_best_of_another_environment_is_replaced(tmp_path: Path) -> None:
    checkpoints.save(tmp_path, replace(make(1), score=score(500.0)))
    other = replace(SIGNATURE, environment="Other-v0")
    checkpoints.save(tmp_path, replace(make(2), score=score(-60.0), signature=other))
    assert checkpoints.load(tmp_path / BEST).counters.updates == 2
    checkpoints.save(tmp_path, replace(make(3), score=score(-70.0), signature=other))
    assert checkpoints.load(tmp_path / BEST).counters.updates == 2


def test_a_best_checkpoint_that_cannot_be_read_is_replaced(tmp_path: Path) -> None:
    (tmp_path / BEST).write_bytes(b"no checkpoint")
    checkpoints.save(tmp_path, replace(make(3), score=score(-1.0)))
    assert checkpoints.load(tmp_path / BEST).counters.updates == 3


@pytest.mark.parametrize("value", ['"7.5"', "NaN", "Infinity", "true", "null", "[1.0]"])
def test_a_best_checkpoint_whose_score_is_no_finite_number_is_replaced(
    tmp_path: Path, value: str
) -> None:
    """As another program wrote it, or an older version after returns that were not finite."""
    about = json.dumps({"signature": asdict(SIGNATURE), "score": asdict(score(0.0))})
    written(tmp_path / BEST, about.replace("0.0", value), {})
    checkpoints.save(tmp_path, replace(make(2), score=score(-60.0)))
    assert checkpoints.load(tmp_path / BEST).counters.updates == 2


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_score_that_is_not_finite_is_never_the_best(tmp_path: Path, value: float) -> None:
    path = checkpoints.save(tmp_path, replace(make(1), score=score(value, "evaluation")))
    assert not (tmp_path / BEST).exists()
    assert checkpoints.load(path).counters.updates == 1
    checkpoints.save(tmp_path, replace(make(2), score=score(-60.0)))
    checkpoints.save(tmp_path, replace(make(3), score=score(value, "evaluation")))
    assert checkpoints.load(tmp_path / BEST).counters.updates == 2


# ---- older ones where the newest cannot be used


def test_an_older_checkpoint_takes_the_place_of_a_corrupt_one(tmp_path: Path) -> None:
    paths = [checkpoints.save(tmp_path, make(updates)) for updates in (1, 2, 3)]
    (usable, saved), passed = checkpoints.newest_usable(tmp_path, SIGNATURE)
    assert (usable, saved.counters.updates, passed) == (paths[2], 3, [])
    for path in paths[1:]:
        path.write_bytes(path.read_bytes()[:-5])
    (usable, saved), passed = checkpoints.newest_usable(tmp_path, SIGNATURE)
    assert (usable, saved.counters.updates) == (paths[0], 1)
    assert all(path.name in line for path, line in zip(reversed(paths[1:]), passed, strict=True))
    paths[0].write_bytes(b"")
    with pytest.raises(CorruptCheckpoint, match=paths[2].name):
        checkpoints.newest_usable(tmp_path, SIGNATURE)


def test_no_checkpoint_of_something_else_is_passed_over(tmp_path: Path) -> None:
    checkpoints.save(tmp_path, make(1))
    checkpoints.save(tmp_path, replace(make(2), signature=replace(SIGNATURE, network="mlp")))
    with pytest.raises(CheckpointError, match="belongs to the network mlp"):
        checkpoints.newest_usable(tmp_path, SIGNATURE)
