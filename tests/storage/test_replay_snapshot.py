"""The saved replay: bit for bit what was there, or what was saved before."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtagent.memory.blueprint import Blueprint
from rtagent.storage import replay_files
from rtagent.storage.replay_snapshot import MANIFEST, ReplayError, SaveReport, find
from tests.forked import Forked
from tests.limited import limited
from tests.stored_replay import (
    CAPACITY,
    CHUNK,
    PIXELS,
    SHOWN,
    SIGNATURE,
    VECTORS,
    Rings,
    content,
    load,
    names,
    transitions,
)
from tests.stored_replay import small_chunks as small_chunks

pytestmark = pytest.mark.usefixtures("small_chunks")


@pytest.mark.parametrize("blueprint", [PIXELS, VECTORS])
@pytest.mark.parametrize("ticks", [1, CHUNK, CHUNK + 1, 53, CAPACITY, 3 * CAPACITY + 7])
def test_what_is_saved_is_restored_bit_for_bit(
    tmp_path: Path, blueprint: Blueprint, ticks: int
) -> None:
    saved = Rings(blueprint).write(ticks)
    report = saved.save(tmp_path / "replay")
    restored, answer = load(tmp_path / "replay", blueprint)
    oldest = max(0, ticks - SHOWN)
    assert (answer.oldest, answer.newest, answer.problem) == (oldest, ticks - 1, None)
    assert report.ticks == answer.ticks == ticks - oldest
    assert report.bytes == sum(
        path.stat().st_size for path in (tmp_path / "replay").glob("*.chunk")
    )
    for ring in (restored.frames, restored.ledger):
        assert (ring.newest, ring.oldest) == (ticks - 1, oldest)
    assert content(restored, oldest) == content(saved, oldest)
    assert transitions(restored, oldest) == transitions(saved, oldest)
    if ticks > 20:
        assert transitions(restored, oldest)[0]


def test_the_restored_world_goes_on_like_the_one_that_was_saved(tmp_path: Path) -> None:
    saved = Rings().write(150)
    saved.save(tmp_path)
    restored, _ = load(tmp_path)
    saved.write(60)
    restored.write(60)
    assert content(restored, saved.ledger.oldest) == content(saved, saved.ledger.oldest)
    assert transitions(restored, 130) == transitions(saved, 130)


def test_what_a_killed_writer_left_torn_stays_torn(tmp_path: Path) -> None:
    saved = Rings().write(30)
    # Killed between the row and the frame of tick 30, and within the row of tick 40.
    saved.write_row(30)
    for tick in range(31, 50):
        saved.write_row(tick)
        saved.publish(tick)
    saved.ledger._rows["tick"][[0, 40]] = -1
    saved.save(tmp_path)
    restored, _ = load(tmp_path)
    assert content(restored, 0) == content(saved, 0)
    assert restored.ledger.row(0) is restored.ledger.row(40) is None
    assert restored.frames.frame(30) is None
    assert restored.ledger.row(30) is not None
    assert transitions(restored, 0) == transitions(saved, 0)


def test_a_row_without_its_frame_at_the_end_is_left_out(tmp_path: Path) -> None:
    saved = Rings().write(20)
    saved.write_row(20)
    assert saved.save(tmp_path).ticks == 20
    restored, report = load(tmp_path)
    assert report.newest == restored.frames.newest == restored.ledger.newest == 19


def test_nothing_is_written_twice(tmp_path: Path) -> None:
    rings = Rings().write(3 * CHUNK + 5)
    assert rings.save(tmp_path).chunks_written == 4
    assert rings.save(tmp_path) == replace(rings.save(tmp_path), chunks_written=0, chunks_kept=4)
    rings.write(CHUNK)
    report = rings.save(tmp_path)
    assert (report.chunks_written, report.chunks_kept) == (2, 3)
    # The window has left the first two chunks, and a part of the third.
    rings.write(CAPACITY + 2 * CHUNK - rings.ledger.newest)
    rings.save(tmp_path)
    manifest = find(tmp_path, SIGNATURE)
    assert manifest.oldest == rings.ledger.oldest
    assert manifest.chunks[0].first == rings.ledger.oldest
    assert names(tmp_path) == {MANIFEST} | {chunk.file for chunk in manifest.chunks}
    restored, _ = load(tmp_path)
    assert content(restored, manifest.oldest) == content(rings, manifest.oldest)


def test_a_row_that_changed_is_written_anew(tmp_path: Path) -> None:
    rings = Rings().write(2 * CHUNK)
    rings.save(tmp_path)
    rings.ledger.truncate_episode()
    assert rings.save(tmp_path).chunks_written == 1
    assert content(load(tmp_path)[0], 0) == content(rings, 0)


def test_an_empty_ring_changes_nothing(tmp_path: Path) -> None:
    assert find(tmp_path / "absent", SIGNATURE) is None
    Rings().write(20).save(tmp_path)
    before = names(tmp_path)
    assert Rings().save(tmp_path) == SaveReport(0, 0, 0, 0)
    assert names(tmp_path) == before


@settings(max_examples=25)
@given(ticks=st.integers(1, 300), capacity=st.integers(20, 120), later=st.integers(0, 80))
def test_any_size_and_a_second_save(
    tmp_path_factory: pytest.TempPathFactory, ticks: int, capacity: int, later: int
) -> None:
    folder = tmp_path_factory.mktemp("replay")
    saved = Rings(capacity=capacity).write(ticks)
    saved.save(folder)
    saved.write(later).save(folder)
    restored, report = load(folder, capacity=capacity)
    assert report.oldest == saved.ledger.oldest
    assert content(restored, report.oldest) == content(saved, report.oldest)


# ---- the world goes on


def test_ticks_that_are_overwritten_meanwhile_are_left_out(tmp_path: Path) -> None:
    world = Rings().write(250)
    report = world.save(tmp_path, progress=lambda done: world.write(2))
    restored, answer = load(tmp_path)
    assert answer.newest == 249
    assert 0 < report.ticks < SHOWN
    assert answer.oldest == 250 - report.ticks > 250 - SHOWN
    twin = Rings().write(250)
    assert content(restored, answer.oldest) == content(twin, answer.oldest)
    assert restored.frames.frame(answer.oldest) is not None


@pytest.mark.parametrize(("when", "floor"), [(0.0, 16), (0.0, 80), (0.3, 60), (0.95, 88)])
def test_ticks_that_are_given_up_meanwhile_are_left_out(
    tmp_path: Path, when: float, floor: int
) -> None:
    world = Rings().write(90)

    def shrink(done: float) -> None:
        if done > when:
            for ring in (world.frames, world.ledger):
                ring.raise_floor(floor)
            world.frames.frames[:floor] = 0
            world.frames.stamps[:floor] = 0
            world.ledger._rows[:floor] = np.zeros(floor, world.ledger.dtype)

    world.save(tmp_path, progress=shrink)
    restored, answer = load(tmp_path)
    assert (answer.oldest, answer.ticks) == (floor, 90 - floor)
    assert content(restored, floor) == content(world, floor)


def test_a_world_that_is_too_fast_is_reported(tmp_path: Path) -> None:
    world = Rings(run=1).write(50)
    world.save(tmp_path)
    before = names(tmp_path)
    with pytest.raises(ReplayError, match="faster"):
        world.save(tmp_path, progress=lambda done: world.write(CAPACITY))
    manifest = find(tmp_path, SIGNATURE)
    assert manifest.newest == 49
    assert before <= names(tmp_path)


def test_progress_grows_to_one(tmp_path: Path) -> None:
    said: list[float] = []
    Rings().write(250).save(tmp_path, progress=said.append)
    assert said == sorted(said)
    assert said[-1] == 1.0
    assert len(said) > SHOWN // 3
    said.clear()
    load(tmp_path, progress=said.append)
    assert said == sorted(said)
    assert (len(said), said[-1]) == (7, 1.0)


# ---- faults


def survives(folder: Path, interrupt: Callable[[Rings], None]) -> tuple[Rings, set[str]]:
    """Interrupt a second save; the first must be there as it was."""
    first = Rings(run=1).write(60)
    first.save(folder)
    before = names(folder)
    second = Rings(run=2).write(90)
    interrupt(second)
    assert before <= names(folder)
    restored, report = load(folder)
    assert (report.ticks, report.problem) == (60, None)
    assert content(restored, 0) == content(first, 0)
    return second, names(folder) - before


def test_an_ended_save_leaves_the_one_before_and_goes_on_later(tmp_path: Path) -> None:
    def end(rings: Rings) -> None:
        done: list[float] = []
        with pytest.raises(ReplayError, match="was ended"):
            rings.save(tmp_path, progress=done.append, stop=lambda: done[-1] > 0.5)

    second, left = survives(tmp_path, end)
    assert len(left) == 2
    assert second.save(tmp_path).chunks_kept == 2
    assert content(load(tmp_path)[0], 0) == content(second, 0)


@pytest.mark.parametrize("saved", [0, 60])
def test_saves_that_never_end_leave_no_more_and_more_files(tmp_path: Path, saved: int) -> None:
    # As of a daemon that is killed while it saves, each time it is stopped.
    first = Rings(run=1).write(saved)
    first.save(tmp_path)
    sizes, done = [], [0.0]
    for run in range(2, 6):
        done.append(0.0)
        with pytest.raises(ReplayError, match="was ended"):
            Rings(run=run).write(90).save(
                tmp_path, progress=done.append, stop=lambda: done[-1] > 0.5
            )
        sizes.append(len(names(tmp_path)))
    assert sizes == [sizes[0]] * 4
    if saved:
        assert content(load(tmp_path)[0], 0) == content(first, 0)


def test_a_full_disk_leaves_the_one_before(tmp_path: Path) -> None:
    def fill(rings: Rings) -> None:
        full = pytest.raises(ReplayError, match=r"cannot write the replay .* as it was")
        with limited("FSIZE", 600), full:
            rings.save(tmp_path)

    _, left = survives(tmp_path, fill)
    assert left == set()


def test_a_disk_that_fails_at_the_manifest_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = os.replace

    def fail(source: str, target: Path) -> None:
        if Path(target).name == MANIFEST:
            raise OSError(28, "No space left on device")
        rename(source, target)

    def fill(rings: Rings) -> None:
        monkeypatch.setattr(os, "replace", fail)
        with pytest.raises(ReplayError, match="No space left"):
            rings.save(tmp_path)
        monkeypatch.undo()

    _, left = survives(tmp_path, fill)
    assert left == set()


def test_a_disk_that_fails_after_the_manifest_leaves_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Rings(run=1).write(60).save(tmp_path)
    second = Rings(run=2).write(90)

    remove = Path.unlink
    failures = []

    def fail(path: Path, missing_ok: bool = False) -> None:
        failures.append(path)
        if len(failures) == 1:
            raise OSError(5, "Input/output error")
        remove(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", fail)
    # It said that the replay saved before was as it was.
    assert second.save(tmp_path).ticks == 90
    assert failures
    monkeypatch.undo()
    assert content(load(tmp_path)[0], 0) == content(second, 0)
    second.save(tmp_path)
    assert not failures[0].exists()


@pytest.mark.process
def test_a_killed_save_leaves_the_one_before(tmp_path: Path, forked: Forked) -> None:
    def kill(rings: Rings) -> None:
        def save(ready: Callable[[], object]) -> None:
            def hang(done: float) -> None:
                if done > 0.5:
                    ready()
                    signal.pause()

            rings.save(tmp_path, progress=hang)

        forked.kill(forked.start_ready(save))

    second, left = survives(tmp_path, kill)
    assert len([name for name in left if name.startswith(replay_files.DRAFT)]) == 1
    assert second.save(tmp_path).chunks_kept == 2
    assert content(load(tmp_path)[0], 0) == content(second, 0)
    assert not list(tmp_path.glob(f"{replay_files.DRAFT}*"))
