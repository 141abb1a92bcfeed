"""The action cells: what the environment finds for a tick, whoever was killed while writing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rtagent.config import MAX_INFERENCE_PROCESSES
from rtagent.memory.actions import CELLS, LATE_TICKS, NANO, ActionCells
from rtagent.memory.blueprint import Blueprint
from rtagent.staggering.arbiter import Deposited
from tests.conftest import make_blueprint

Images = Callable[..., list[bytes]]
Shared = Callable[[int], memoryview]


def deposit(tick: int, worker: int = 0, frame: int | None = None, action: int = 1) -> Deposited:
    seen = tick - 5 if frame is None else frame
    return Deposited(worker, seen, tick, action, version=tick + 1, registered_at=tick / 8)


@pytest.fixture
def memory(shared: Shared, blueprint: Blueprint) -> memoryview:
    found = shared(ActionCells.size(blueprint))
    ActionCells.format(found, blueprint)
    return found


@pytest.fixture
def cells(memory: memoryview, blueprint: Blueprint) -> ActionCells:
    return ActionCells(memory, blueprint)


def test_empty_cells_hold_nothing(cells: ActionCells) -> None:
    assert all(list(cells.at(tick)) == [] for tick in range(-1, CELLS + 1))
    assert cells.late(10, -1) is None


def test_exactly_this_tick(cells: ActionCells) -> None:
    # Several outstanding deposits, as under a delay of many ticks.
    for tick in range(100, 130):
        cells.deposit(deposit(tick, worker=tick % 3))
    for tick in range(100, 130):
        assert list(cells.at(tick)) == [deposit(tick, worker=tick % 3)]
    assert list(cells.at(99)) == list(cells.at(130)) == []


def test_all_workers_of_a_tick(cells: ActionCells) -> None:
    for worker in (2, 0, MAX_INFERENCE_PROCESSES - 1):
        cells.deposit(deposit(7, worker=worker, action=worker % 3))
    assert list(cells.at(7)) == [
        deposit(7, worker=worker, action=worker % 3)
        for worker in (0, 2, MAX_INFERENCE_PROCESSES - 1)
    ]


def test_stamp_tells_ticks_of_one_cell_apart(cells: ActionCells) -> None:
    cells.deposit(deposit(5))
    assert list(cells.at(5 + CELLS)) == []
    cells.deposit(deposit(5 + CELLS))
    assert list(cells.at(5)) == []
    assert list(cells.at(5 + CELLS)) == [deposit(5 + CELLS)]


def test_the_frames_of_registered_actions(cells: ActionCells) -> None:
    items = [deposit(tick, worker=tick % 2) for tick in (40, 41, 42)]
    for item in (*items, deposit(42 + CELLS, worker=0), deposit(41, worker=1, frame=7)):
        cells.deposit(item)
    cells.deposit(replace(deposit(44), registered_at=9.0))
    asked = [*items, deposit(43), deposit(44)]
    frames = cells.frames_of(
        np.array([item.worker for item in asked]),
        np.array([item.tick for item in asked]),
        np.array([round(item.registered_at * NANO) for item in asked]),
    )
    assert frames.tolist() == [35, 7, -1, -1, -1]


def test_late_is_the_newest_frame(cells: ActionCells) -> None:
    cells.deposit(deposit(50, worker=0, frame=44))
    cells.deposit(deposit(48, worker=1, frame=46))
    cells.deposit(deposit(49, worker=2, frame=45))
    cells.deposit(deposit(52, worker=3, frame=51))
    assert cells.late(52, 40) == deposit(48, worker=1, frame=46)
    assert cells.late(49, 40) == deposit(48, worker=1, frame=46)
    assert cells.late(48, 40) is None
    assert cells.late(52, 45) == deposit(48, worker=1, frame=46)
    assert cells.late(52, 46) is None


def test_a_late_cell_that_is_written_anew_after_the_first_look(cells: ActionCells) -> None:
    """What its frame was at the look says nothing of the frame that is read."""
    cells.deposit(deposit(10, frame=9))
    frames = cells._frames

    class Overtaken(np.ndarray):
        def __getitem__(self, key: Any) -> Any:
            found = np.array(frames[key])
            cells.deposit(deposit(10, frame=3))
            return found

    cells._frames = frames.view(Overtaken)
    assert cells.late(12, 5) is None
    cells.deposit(deposit(10, frame=9))
    assert cells.late(12, 2) == deposit(10, frame=3)


def test_late_looks_back_so_far(cells: ActionCells) -> None:
    cells.deposit(deposit(100, frame=90))
    assert cells.late(100 + LATE_TICKS, -1) == deposit(100, frame=90)
    assert cells.late(100 + LATE_TICKS + 1, -1) is None


def test_late_across_the_seam(cells: ActionCells) -> None:
    cells.deposit(deposit(CELLS - 1, frame=9))
    assert cells.late(CELLS + 3, -1) == deposit(CELLS - 1, frame=9)


def test_late_at_the_beginning(cells: ActionCells) -> None:
    cells.deposit(deposit(0, frame=-1))
    assert cells.late(0, -5) is None
    assert cells.late(1, -5) == deposit(0, frame=-1)


def test_torn_late_action_gives_way_to_an_older_one(
    cells: ActionCells, memory: memoryview
) -> None:
    cells.deposit(deposit(10, worker=0, frame=7))
    cells.deposit(deposit(11, worker=1, frame=8))
    at = (CELLS + 11) * ActionCells.size(make_blueprint()) // (CELLS * MAX_INFERENCE_PROCESSES)
    memory[at + 16] ^= 1
    assert cells.late(20, -1) == deposit(10, worker=0, frame=7)
    assert list(cells.at(11)) == []


def test_only_so_many_rows_are_read(cells: ActionCells) -> None:
    cells.deposit(deposit(3, worker=2))
    cells.limit(2)
    assert list(cells.at(3)) == []
    assert cells.late(4, -9) is None
    cells.limit(3)
    assert list(cells.at(3)) == [deposit(3, worker=2)]
    for asked, rows in ((0, 1), (10_000, MAX_INFERENCE_PROCESSES)):
        cells.limit(asked)
        assert cells.rows == rows



def test_vectors(shared: Shared) -> None:
    blueprint = make_blueprint(action_shape=(2,), action_dtype="float32")
    memory = shared(ActionCells.size(blueprint))
    ActionCells.format(memory, blueprint)
    cells = ActionCells(memory, blueprint)
    cells.deposit(Deposited(0, 1, 2, np.array([0.5, -2.0]), 3, 4.0))
    (found,) = cells.at(2)
    assert found.action.tolist() == [0.5, -2.0]
    assert found.action.dtype == np.float32


def test_writer_killed_anywhere(
    memory: memoryview, blueprint: Blueprint, images: Images
) -> None:
    cells = ActionCells(memory, blueprint)
    old, new = deposit(9, frame=3, action=1), deposit(9 + CELLS, frame=CELLS, action=2)
    cells.deposit(old)
    row = memory[: len(memory) // MAX_INFERENCE_PROCESSES]
    left = images(row, ActionCells.deposit.__code__, lambda: cells.deposit(new))
    seen = set()
    for image in left:
        row[:] = image
        reader = ActionCells(memory, blueprint)
        at_old, at_new = list(reader.at(9)), list(reader.at(9 + CELLS))
        assert at_old in ([], [old])
        assert at_new in ([], [new])
        assert reader.late(10 + CELLS, -1) in (None, new)
        seen.add((len(at_old), len(at_new)))
        reader.deposit(new)
        assert list(reader.at(9 + CELLS)) == [new]
    assert seen == {(1, 0), (0, 0), (0, 1)}


def test_half_a_body_is_never_executed(memory: memoryview, blueprint: Blueprint) -> None:
    """The stamp alone is not trusted: each damaged byte makes the cell invisible."""
    cells = ActionCells(memory, blueprint)
    cells.deposit(deposit(0, frame=-5))
    for at in range(8 + len(cells.encode(deposit(0, frame=-5)))):
        memory[at] ^= 0x10
        assert list(cells.at(0)) == []
        memory[at] ^= 0x10
    assert list(cells.at(0)) == [deposit(0, frame=-5)]


def test_versions_beyond_31_bits_are_no_error(memory: memoryview, blueprint: Blueprint) -> None:
    cells = ActionCells(memory, blueprint)
    cells.deposit(replace(deposit(0, frame=-5), version=2**31 + 7))
    assert [found.version for found in cells.at(0)] == [7]
