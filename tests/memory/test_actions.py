"""The action slots: what the environment finds for a tick, whoever was killed while writing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rtagent.clock import NANO
from rtagent.config import MAX_INFERENCE_PROCESSES
from rtagent.memory.actions import SLOTS, ActionSlots
from rtagent.memory.blueprint import Blueprint
from rtagent.staggering.arbiter import Deposited
from tests.conftest import make_blueprint

Images = Callable[..., list[bytes]]
Shared = Callable[[int], memoryview]


def deposit(tick: int, worker: int = 0, frame: int | None = None, action: int = 1) -> Deposited:
    seen = tick - 5 if frame is None else frame
    return Deposited(
        worker, seen, tick, action, version=tick + 1, registered_at=tick / 8,
        log_probability=-tick / 16, position=tick % 3,
    )


@pytest.fixture
def memory(shared: Shared, blueprint: Blueprint) -> memoryview:
    found = shared(ActionSlots.size(blueprint))
    ActionSlots.format(found)
    return found


@pytest.fixture
def slots(memory: memoryview, blueprint: Blueprint) -> ActionSlots:
    return ActionSlots(memory, blueprint)


def test_empty_slots_hold_nothing(slots: ActionSlots) -> None:
    assert all(list(slots.at(tick)) == [] for tick in range(-1, SLOTS + 1))
    assert slots.late(10, -1) is None


def test_exactly_this_tick(slots: ActionSlots) -> None:
    # Several outstanding deposits, as under a delay of many ticks.
    for tick in range(100, 130):
        slots.deposit(deposit(tick, worker=tick % 3))
    for tick in range(100, 130):
        assert list(slots.at(tick)) == [deposit(tick, worker=tick % 3)]
    assert list(slots.at(99)) == list(slots.at(130)) == []


def test_all_workers_of_a_tick(slots: ActionSlots) -> None:
    for worker in (2, 0, MAX_INFERENCE_PROCESSES - 1):
        slots.deposit(deposit(7, worker=worker, action=worker % 3))
    assert list(slots.at(7)) == [
        deposit(7, worker=worker, action=worker % 3)
        for worker in (0, 2, MAX_INFERENCE_PROCESSES - 1)
    ]


def test_stamp_tells_ticks_of_one_slot_apart(slots: ActionSlots) -> None:
    slots.deposit(deposit(5))
    assert list(slots.at(5 + SLOTS)) == []
    slots.deposit(deposit(5 + SLOTS))
    assert list(slots.at(5)) == []
    assert list(slots.at(5 + SLOTS)) == [deposit(5 + SLOTS)]


def test_the_frames_of_registered_actions(slots: ActionSlots) -> None:
    items = [deposit(tick, worker=tick % 2) for tick in (40, 41, 42)]
    for item in (*items, deposit(42 + SLOTS, worker=0), deposit(41, worker=1, frame=7)):
        slots.deposit(item)
    slots.deposit(replace(deposit(44), registered_at=9.0))
    asked = [*items, deposit(43), deposit(44)]
    frames = slots.frames_of(
        np.array([item.worker for item in asked]),
        np.array([item.tick for item in asked]),
        np.array([round(item.registered_at * NANO) for item in asked]),
    )
    assert frames.tolist() == [35, 7, -1, -1, -1]


def test_late_is_the_newest_frame(slots: ActionSlots) -> None:
    slots.deposit(deposit(50, worker=0, frame=44))
    slots.deposit(deposit(48, worker=1, frame=46))
    slots.deposit(deposit(49, worker=2, frame=45))
    slots.deposit(deposit(52, worker=3, frame=51))
    assert slots.late(52, 40) == deposit(48, worker=1, frame=46)
    assert slots.late(49, 40) == deposit(48, worker=1, frame=46)
    assert slots.late(48, 40) is None
    assert slots.late(52, 45) == deposit(48, worker=1, frame=46)
    assert slots.late(52, 46) is None


def test_of_a_late_chunk_the_last_action(slots: ActionSlots) -> None:
    for position in (0, 2, 1):
        slots.deposit(deposit(10 + position, frame=4))
    assert slots.late(20, 3) == deposit(12, frame=4)


def test_a_late_slot_that_is_written_anew_after_the_first_look(
    slots: ActionSlots, overtaken: Any
) -> None:
    """What its frame was at the look says nothing of the frame that is read."""
    frames = slots._frames
    for newer_than, found in ((5, None), (2, deposit(10, frame=3))):
        slots.deposit(deposit(10, frame=9))
        slots._frames = overtaken(frames, lambda: slots.deposit(deposit(10, frame=3)))
        assert slots.late(12, newer_than) == found


@pytest.mark.parametrize(
    ("tick", "looks"),
    [
        # However late, across the seam, and at the beginning.
        (100, {100: False, 101: True, 165: True, 100 + SLOTS: True, 100 + 9 * SLOTS: True}),
        (SLOTS - 1, {SLOTS + 3: True}), (0, {0: False, 1: True}),
    ],
)
def test_late_looks_back_to_the_newest_frame_that_was_acted_on(
    slots: ActionSlots, tick: int, looks: dict[int, bool]
) -> None:
    slots.deposit(deposit(tick))
    for at, found in looks.items():
        for newer_than, newer in ((-9, True), (tick - 6, True), (tick - 5, False)):
            assert slots.late(at, newer_than) == (deposit(tick) if found and newer else None)


def test_torn_late_action_gives_way_to_an_older_one(slots: ActionSlots, memory: memoryview) -> None:
    slots.deposit(deposit(10, worker=0, frame=7))
    slots.deposit(deposit(11, worker=1, frame=8))
    memory[slots._offset(1, 11) + 8] ^= 1
    assert slots.late(20, -1) == deposit(10, worker=0, frame=7)
    assert list(slots.at(11)) == []


def test_only_so_many_rows_are_read(slots: ActionSlots) -> None:
    slots.deposit(deposit(3, worker=2))
    slots.limit(2)
    assert list(slots.at(3)) == []
    assert slots.late(4, -9) is None
    slots.limit(3)
    assert list(slots.at(3)) == [deposit(3, worker=2)]
    for asked, rows in ((0, 1), (10_000, MAX_INFERENCE_PROCESSES)):
        slots.limit(asked)
        assert slots.rows == rows


def test_vectors() -> None:
    slots = ActionSlots.private(make_blueprint(action_shape=(2,), action_dtype="float32"))
    slots.deposit(Deposited(0, 1, 2, np.array([0.5, -2.0]), 3, 4.0))
    (found,) = slots.at(2)
    assert found.action.tolist() == [0.5, -2.0]
    assert found.action.dtype == np.float32


def test_writer_killed_anywhere(
    slots: ActionSlots, memory: memoryview, blueprint: Blueprint, images: Images
) -> None:
    old, new = deposit(9, frame=3, action=1), deposit(9 + SLOTS, frame=SLOTS, action=2)
    slots.deposit(old)
    left = images(memory, lambda: slots.deposit(new), ActionSlots.deposit.__code__)
    seen = set()
    for image in left:
        memory[:] = image
        reader = ActionSlots(memory, blueprint)
        at_old, at_new = list(reader.at(9)), list(reader.at(9 + SLOTS))
        assert at_old in ([], [old])
        assert at_new in ([], [new])
        assert reader.late(10 + SLOTS, -1) in (None, old, new)
        seen.add((len(at_old), len(at_new)))
        reader.deposit(new)
        assert list(reader.at(9 + SLOTS)) == [new]
    assert seen == {(1, 0), (0, 0), (0, 1)}


def test_half_a_body_is_never_executed(slots: ActionSlots, memory: memoryview) -> None:
    """The stamp alone is not trusted: each damaged byte makes the slot invisible."""
    slots.deposit(deposit(0, frame=-5))
    start = slots._offset(0, 0)
    for at in (*range(8), *range(start, start + len(slots.encode(deposit(0, frame=-5))))):
        memory[at] ^= 0x10
        assert list(slots.at(0)) == []
        memory[at] ^= 0x10
    assert list(slots.at(0)) == [deposit(0, frame=-5)]


def test_an_action_under_the_stamp_of_another_tick_is_not_believed(slots: ActionSlots) -> None:
    slots.deposit(deposit(9))
    slots._ticks[0, 9] += SLOTS
    assert list(slots.at(9 + SLOTS)) == []


def test_versions_beyond_31_bits_are_no_error(slots: ActionSlots) -> None:
    slots.deposit(replace(deposit(0, frame=-5), version=2**31 + 7))
    assert [found.version for found in slots.at(0)] == [7]
