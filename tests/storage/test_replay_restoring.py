"""Restoring: what fits, and what is whole."""

from __future__ import annotations

import os
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rtagent.config import LearningConfig
from rtagent.memory.ring import GUARD_TICKS
from rtagent.storage import replay_files
from rtagent.storage.process import priority_rule
from rtagent.storage.replay_restoring import restore
from rtagent.storage.replay_snapshot import find
from tests.refused import one_line
from tests.storage.damaged import each_byte_damaged
from tests.stored_replay import (
    CAPACITY,
    CHUNK,
    SHOWN,
    SIGNATURE,
    VECTORS,
    Rings,
    content,
    load,
    names,
    priorities,
)
from tests.stored_replay import small_chunks as small_chunks

pytestmark = pytest.mark.usefixtures("small_chunks")


@pytest.mark.parametrize(("capacity", "keep"), [(40, 999), (CAPACITY, 32), (300, 0), (777, 999)])
def test_the_newest_ticks_that_fit_are_restored(tmp_path: Path, capacity: int, keep: int) -> None:
    saved = Rings().write(250)
    saved.save(tmp_path)
    restored, report = load(tmp_path, capacity=capacity, keep=keep)
    wanted = min(capacity - GUARD_TICKS, SHOWN, keep)
    assert report.ticks == wanted
    assert report.problem is None
    assert restored.ledger.oldest == restored.frames.oldest == 250 - wanted
    assert content(restored, 250 - wanted) == content(saved, 250 - wanted)


@pytest.mark.parametrize("damage", ["cut", "remove", "other", "pipe", "zeros", "longer"])
@pytest.mark.parametrize("chunk", [0, 2, 5])
def test_a_corrupt_chunk_is_left_out_with_everything_older(
    tmp_path: Path, damage: str, chunk: int
) -> None:
    saved = Rings().write(90)
    saved.save(tmp_path)
    manifest = find(tmp_path, SIGNATURE)
    path = tmp_path / manifest.chunks[chunk].file
    whole = path.read_bytes()
    if damage == "cut":
        path.write_bytes(whole[: 3 * chunk])
    elif damage == "remove":
        path.unlink()
    elif damage == "pipe":
        path.unlink()
        os.mkfifo(path)
    elif damage == "zeros":
        path.unlink()
        path.symlink_to("/dev/zero")
    elif damage == "longer":
        path.write_bytes(whole + whole)
    else:
        path.write_bytes((tmp_path / manifest.chunks[1].file).read_bytes())
    restored, report = load(tmp_path)
    oldest = 90 if chunk == 5 else (chunk + 1) * CHUNK
    assert (report.newest, report.oldest) == (89, oldest)
    assert manifest.chunks[chunk].file in report.problem
    assert "\n" not in report.problem
    assert restored.ledger.newest == restored.frames.newest == 89
    assert restored.ledger.oldest == restored.frames.oldest == oldest
    assert content(restored, oldest) == content(saved, oldest)
    assert restored.ledger.row(oldest - 1) is restored.frames.frame(oldest - 1) is None


def test_a_chunk_that_claims_more_bytes_than_there_is_memory_is_left_out(tmp_path: Path) -> None:
    Rings().write(90).save(tmp_path, priorities=priorities)
    manifest = find(tmp_path, SIGNATURE)
    huge = [replace(each, bytes=2**61) for each in (manifest.chunks[0], manifest.priorities)]
    claimed = replace(manifest, chunks=(huge[0], *manifest.chunks[1:]), priorities=huge[1])
    restored = Rings()
    report = restore(tmp_path, claimed, SIGNATURE, restored.frames, restored.ledger)
    assert (report.newest, report.oldest, report.priorities) == (89, CHUNK, None)
    assert "no memory" in report.problem


def test_every_flipped_byte_of_a_chunk_is_found(tmp_path: Path) -> None:
    Rings(VECTORS).write(3).save(tmp_path)
    (path,) = tmp_path.glob("*.chunk")
    for at in each_byte_damaged(path):
        _, report = load(tmp_path, VECTORS)
        assert report.problem is not None, at
        assert report.ticks == 0


def test_rows_of_another_layout_are_refused(tmp_path: Path) -> None:
    """They counted as damaged, none of them was restored, and the next save removed them."""
    Rings().write(20).save(tmp_path)
    with one_line("its rows are those of another version"):
        load(tmp_path, VECTORS)


def test_priorities_come_back(tmp_path: Path) -> None:
    world = Rings().write(250)
    world.save(tmp_path, priorities=priorities)
    _, report = load(tmp_path)
    assert report.priorities.tolist() == priorities(report.oldest, 250).tolist()
    _, smaller = load(tmp_path, keep=10)
    assert smaller.priorities.tolist() == priorities(240, 250).tolist()
    before = {path for path in names(tmp_path) if path.startswith("priorities")}
    world.write(10).save(tmp_path, priorities=priorities)
    assert before.isdisjoint(names(tmp_path))
    world.save(tmp_path)
    assert load(tmp_path)[1].priorities is None
    assert not list(tmp_path.glob("priorities*"))


def test_priorities_of_a_shifted_window_have_another_file(tmp_path: Path) -> None:
    """Equal values of other ticks must not overwrite what the manifest in force names."""
    world = Rings().write(250)
    world.save(tmp_path, priorities=lambda first, stop: np.ones(stop - first))
    (before,) = tmp_path.glob("priorities*")
    world.write(3).save(tmp_path, priorities=lambda first, stop: np.ones(stop - first))
    (after,) = tmp_path.glob("priorities*")
    assert before != after


@pytest.mark.parametrize("worst", [-1.0, float("nan"), float("inf")])
def test_priorities_that_are_none_are_left_out(tmp_path: Path, worst: float) -> None:
    Rings().write(20).save(tmp_path, priorities=lambda first, stop: np.full(stop - first, worst))
    _, report = load(tmp_path)
    assert report.ticks == 20
    assert report.priorities is None
    assert "a priority is negative or not finite" in (report.problem or "")


def test_priorities_by_another_rule_are_left_out(tmp_path: Path) -> None:
    """They may be those of other frames, and of such no batch could be made."""
    ours, theirs = (
        priority_rule(LearningConfig(**settings))
        for settings in ({"transitions": "executed"}, {"priority_exponent": 0.5})
    )
    Rings().write(20).save(tmp_path, priorities=priorities, rule=theirs)
    _, report = load(tmp_path, rule=theirs)
    assert report.problem is None
    assert report.priorities is not None
    for other in (ours, ""):
        _, report = load(tmp_path, rule=other)
        assert (report.ticks, report.priorities, report.problem) == (20, None, None)


def test_a_header_that_is_no_json_is_another_files(tmp_path: Path) -> None:
    """Its checksum is right: somebody wrote it so."""
    Rings().write(3).save(tmp_path)
    (path,) = tmp_path.glob("*.chunk")
    for text in (b"[" * 100_000, b"\xff", b"{"):
        body = replay_files._HEAD.pack(replay_files._MAGIC, len(text)) + text
        content = body + replay_files._CRC.pack(zlib.crc32(body))
        path.write_bytes(content)
        with pytest.raises(replay_files.Corrupt, match="something else"):
            replay_files.Reader(path, len(content))


def test_corrupt_priorities_and_those_of_another_replay_are_left_out(tmp_path: Path) -> None:
    world = Rings().write(20)
    world.save(tmp_path, priorities=priorities)
    Rings().write(15).save(tmp_path / "other", priorities=lambda first, stop: np.ones(20))
    (path,), (other,) = (each.glob("priorities*") for each in (tmp_path, tmp_path / "other"))
    for damage in (b"nothing", other.read_bytes()):
        path.write_bytes(damage)
        restored, report = load(tmp_path)
        assert report.priorities is None
        assert path.name in report.problem
        assert content(restored, 0) == content(world, 0)
