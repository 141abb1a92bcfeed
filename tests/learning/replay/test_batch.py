"""Memory for a batch: used again while batches are alike, given back when they shrink."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from rtagent.config import LearningConfig
from rtagent.learning.replay.batch import BatchBuffer
from rtagent.learning.replay.replay import Replay
from rtagent.memory.blueprint import Blueprint
from tests.rows import private_rings, write_row

pytestmark = pytest.mark.usefixtures("either_way")
STACK = 4
TICKS = 290


@pytest.fixture
def replay(make_blueprint: Callable[..., Blueprint]) -> Replay:
    """One long episode; every frame is its number, every action the frame it was computed from."""
    frames, ledger = private_rings(make_blueprint((4, 4), "uint8", STACK), 300)
    for tick in range(TICKS):
        frames.publish(tick, np.full((4, 4), tick % 256, np.uint8), 0)
        write_row(ledger, tick, action=tick - 1, reward=float(tick))
    replay = Replay(frames, ledger, LearningConfig(n_step=1, gamma=0.9))
    replay.refresh()
    return replay


@pytest.fixture
def buffer(replay: Replay) -> BatchBuffer:
    return replay.new_buffer()


def chosen(buffer: BatchBuffer, count: int) -> np.ndarray:
    """The memory of the states after as many transitions have been chosen."""
    buffer.choose(np.arange(100, 100 + count))
    return buffer.apart()[0]


def test_memory_follows_the_size(buffer: BatchBuffer) -> None:
    large = chosen(buffer, 64)
    assert np.shares_memory(chosen(buffer, 40), large)
    assert not np.shares_memory(chosen(buffer, 31), large)
    assert chosen(buffer, 31).shape == (31, STACK, 4, 4)


def test_a_batch_like_the_last_one_is_the_same_object_filled_anew(buffer: BatchBuffer) -> None:
    batches, contents = [], []
    for first in (100, 150):
        assert buffer.choose(np.arange(first, first + 16)) == 1
        assert not len(buffer.copy(1))
        batches.append(buffer.batch(None))
        contents.append((batches[-1].observations.clone(), batches[-1].frames.copy()))
    assert batches[0] is batches[1]
    for states, numbers in contents:
        assert (states[:, -1, 0, 0].numpy() == numbers % 256).all()
    assert (contents[1][1] - contents[0][1] == 50).all()


@pytest.mark.parametrize("shift", [0, 1])
def test_together_or_apart_the_batch_is_the_same(buffer: BatchBuffer, shift: int) -> None:
    serials = np.array([3, 70, 71, 200])
    assert buffer.choose(serials) == 1
    assert not len(buffer.copy(shift))
    batch = buffer.batch(None)
    states = np.maximum(batch.frames[:, None] + np.arange(1 - STACK, 1), 0)
    assert batch.observations[:, :, 0, 0].tolist() == (states % 256).tolist()
    assert batch.next_observations[:, :, 0, 0].tolist() == ((states + 1) % 256).tolist()
    assert batch.actions.tolist() == batch.frames.tolist()
    assert batch.actions.dtype == torch.int64
    assert batch.rewards.tolist() == (batch.frames + 1).tolist()
    assert batch.discounts.tolist() == pytest.approx([0.9] * 4)
    assert not batch.terminals.any()
    assert batch.weights.tolist() == [1.0] * 4


def test_a_batch_whose_shifts_differ_comes_after_one_whose_shifts_do_not(
    replay: Replay, buffer: BatchBuffer
) -> None:
    replay.index._rows["shift"][150] = 3
    for serials, shifts in (([50, 100], [1, 1]), ([50, 150], [1, 3]), ([60, 100], [1, 1])):
        assert not len(buffer.copy(buffer.choose(np.array(serials))))
        batch = buffer.batch(None)
        newest = batch.next_observations[:, -1, 0, 0].tolist()
        assert newest == ((batch.frames + shifts) % 256).tolist()


def test_weights_are_those_of_this_batch(buffer: BatchBuffer) -> None:
    for weights in ([1.0, 0.5], [0.25, 1.0]):
        buffer.choose(np.array([5, 6]))
        buffer.copy(1)
        assert buffer.batch(np.array(weights)).weights.tolist() == weights


@pytest.mark.parametrize("shift", [0, 1])
def test_lost_transitions_are_returned(replay: Replay, buffer: BatchBuffer, shift: int) -> None:
    serials = np.array([50, 100, 150])
    frames = replay.index.get(serials).frame
    replay._ring.stamps[int(frames[1]) - 2] = -1
    buffer.choose(serials)
    assert buffer.copy(shift).tolist() == [1]
    # The successor's newest frame: of that one alone.
    replay._ring.stamps[int(frames[2]) + 1] = -1
    assert buffer.copy(shift).tolist() == [1, 2]
    # A terminal successor has no value, so its frames do not matter; those of its state do.
    replay.index._rows["terminal"][[100, 150]] = True
    buffer.choose(serials)
    assert buffer.copy(shift).tolist() == [1]
