"""Pending actions: what is read of ledger and slots, how it is kept, what a network is given."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

from rtagent.memory.actions import ActionSlots
from rtagent.memory.blueprint import Blueprint
from rtagent.memory.ledger import Ledger, row_dtype
from rtagent.memory.pending import PendingActions, PendingReader
from rtagent.staggering.arbiter import Deposited
from tests.conftest import make_blueprint
from tests.rows import write_row

CAPACITY = 256
COUNT = 4
BOX = gymnasium.spaces.Box(np.array([-2.0, 0.0, 1.0], "f4"), np.array([2.0, 10.0, 1.0], "f4"))
CONTINUOUS = {"action_space": BOX, "action_shape": (3,), "action_dtype": "float32"}


def shapes(continuous: bool = False, count: int = COUNT) -> Blueprint:
    return make_blueprint(pending_actions=count, **(CONTINUOUS if continuous else {}))


def layout(blueprint: Blueprint) -> PendingActions:
    found = PendingActions.of(blueprint)
    assert found is not None
    return found


class Memory:
    """Ledger and slots."""

    def __init__(self, blueprint: Blueprint) -> None:
        self.ledger = Ledger.private(blueprint, CAPACITY)
        self.slots = ActionSlots.private(blueprint)

    def execute(self, tick: int, action: Any, pending: Any = None) -> None:
        write_row(self.ledger, tick, action=action, pending=pending)

    def promise(self, tick: int, frame: int, worker: int, action: Any, pending: Any = None) -> None:
        self.slots.deposit(Deposited(worker, frame, tick, action, 1, 1.0, pending=pending))


@pytest.mark.parametrize("continuous", [False, True])
def test_what_a_network_is_given_is_that_of_a_slow_transcription(continuous: bool) -> None:
    pending, rng = layout(shapes(continuous)), np.random.default_rng(1)
    batch = np.stack([pending.unknown() for _ in range(5)])
    wanted = np.zeros((5, pending.width), np.float32)
    for row in range(5):
        for place in range(COUNT):
            if rng.random() < 0.3:
                continue
            if continuous:
                low, high = BOX.low, BOX.high
                action = (low + rng.random(3) * (high - low)).astype(np.float32)
                for component in range(3):
                    span = float(high[component] - low[component])
                    share = (float(action[component] - low[component]) / span) if span else 0.5
                    wanted[row, 4 * place + component] = 2.0 * share - 1.0
                wanted[row, 4 * place + 3] = 1.0
            else:
                action = np.int32(rng.integers(3))
                wanted[row, 3 * place + int(action)] = 1.0
            batch[row, place] = action
    np.testing.assert_allclose(pending.encode(batch), wanted, atol=1e-6)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_read_is_that_of_a_slow_transcription(seed: int) -> None:
    """Executed before promised before unknown; of several promises that of the newest frame."""
    memory, rng = Memory(shapes()), np.random.default_rng(seed)
    newest = int(rng.integers(5, 30))
    executed = {tick: int(rng.integers(3)) for tick in range(newest + 1)}
    for tick, action in executed.items():
        memory.execute(tick, action)
    promised: dict[int, tuple[int, int]] = {}
    for worker in range(4):
        for tick in range(newest - 3, newest + 6):
            if rng.random() < 0.4:
                frame, action = 10 * int(rng.integers(100)) + worker, int(rng.integers(3))
                memory.promise(tick, frame, worker, action)
                promised[tick] = max(promised.get(tick, (-1, -1)), (frame, action))
    reader = PendingReader(layout(shapes()), memory.ledger, memory.slots)
    for frame in range(newest - 6, newest + 1):
        wanted = [
            executed.get(tick, promised.get(tick, (0, -1))[1])
            for tick in range(frame + 1, frame + 1 + COUNT)
        ]
        assert reader.read(frame).tolist() == wanted


@pytest.mark.parametrize("continuous", [False, True])
def test_what_was_seen_travels_from_the_slot_to_the_row(
    continuous: bool, either_way: str
) -> None:
    memory, pending = Memory(shapes(continuous)), layout(shapes(continuous))
    seen = pending.unknown()
    seen[1] = action = [1.0, 2.0, 1.0] if continuous else 2
    memory.promise(7, 3, 0, action, seen)
    (found,) = memory.slots.at(7)
    np.testing.assert_array_equal(found.pending, seen)
    memory.execute(0, action)
    memory.execute(1, found.action, found.pending)
    memory.ledger.truncate_episode()
    rows = memory.ledger.read(0, 2)
    assert len(rows) == 2
    np.testing.assert_array_equal(rows["pending"], [pending.unknown(), seen])
    assert rows["flags"].tolist() == [0, 2]


@pytest.mark.parametrize("at", [-1, -9])
def test_a_row_whose_pending_actions_are_torn_is_not_read(at: int, either_way: str) -> None:
    memory = Memory(shapes())
    memory.execute(0, 1, layout(shapes()).unknown())
    raw = memory.ledger._rows.view(np.uint8).reshape(CAPACITY, -1)
    used = layout(shapes()).dtype.itemsize + memory.ledger.dtype.fields["pending"][1]  # type: ignore[index]
    raw[0, used + at] ^= 1
    assert not len(memory.ledger.read(0, 1))


def test_without_them_a_row_and_a_slot_are_as_small_as_ever() -> None:
    without, some = make_blueprint(), shapes()
    assert PendingActions.of(without) is None
    assert "pending" not in (row_dtype(without).names or ())
    assert row_dtype(some).itemsize - row_dtype(without).itemsize <= 4 * COUNT + 4
    assert ActionSlots.size(some) > ActionSlots.size(without)
