"""Replay: what leaves it is what the ring holds, also while the ring is being overwritten."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from rtagent.config import LearningConfig
from rtagent.learning.replay import FrameGather, Replay
from rtagent.memory.blueprint import Blueprint
from rtagent.memory.frames import FrameRing
from rtagent.memory.ledger import TERMINATED, Ledger

STACK = 4
EPISODE = 25
LEARNING = LearningConfig(n_step=2, gamma=0.9)


def picture(number: int) -> np.ndarray:
    """A frame that tells its number."""
    return np.frombuffer(np.full(4, number, "<u4").tobytes(), np.uint8).reshape(4, 4)


def numbers_in(stacks: torch.Tensor) -> np.ndarray:
    """The numbers of the frames, (B, stack); each must be whole."""
    raw = np.ascontiguousarray(stacks.numpy()).reshape(len(stacks), STACK, 16)
    words = raw.view("<u4")
    assert (words == words[:, :, :1]).all()
    return words[:, :, 0].astype(np.int64)


@pytest.fixture
def blueprint(make_blueprint: Callable[..., Blueprint]) -> Blueprint:
    return make_blueprint((4, 4), "uint8", STACK)


@pytest.fixture
def play(write_row: Callable[..., None]) -> Callable[..., None]:
    """Play ticks: episodes of 25 ticks, delay of one tick, the action tells the observed frame."""

    def ticks(frames: FrameRing, ledger: Ledger, start: int, stop: int) -> None:
        for tick in range(start, stop):
            first = tick - tick % EPISODE
            frames.publish(tick, picture(tick), first)
            write_row(
                ledger, tick, action=tick - 1, reward=float(tick), episode=tick // EPISODE,
                flags=TERMINATED if tick % EPISODE == EPISODE - 1 else 0,
            )

    return ticks


def check(batch: Any) -> None:
    """Each sample of a batch against what `play` played."""
    seen, following = numbers_in(batch.observations), numbers_in(batch.next_observations)
    for i, action in enumerate(batch.actions.tolist()):
        first = action - action % EPISODE
        last = first + EPISODE - 1
        assert seen[i].tolist() == [max(first, action + o) for o in range(-3, 1)]
        successor = min(action + 2, last)
        if not batch.terminals[i]:
            assert following[i].tolist() == [max(first, successor + o) for o in range(-3, 1)]
        assert bool(batch.terminals[i]) == (action + 2 >= last)
        steps = 1 if action + 1 == last else 2
        assert batch.discounts[i].item() == pytest.approx(0.9**steps)
        reward = sum(0.9**k * (action + 1 + k) for k in range(steps))
        assert batch.rewards[i].item() == pytest.approx(reward)


@pytest.mark.parametrize("ticks", [60, 1000])
def test_batches_hold_what_happened(
    ticks: int, blueprint: Blueprint, make_rings: Any, play: Any
) -> None:
    frames, ledger = make_rings(blueprint, 300)
    replay = Replay(frames, ledger, LEARNING)
    rng = np.random.default_rng(0)
    drawn: set[int] = set()
    for stop in range(20, ticks + 1, 20):
        play(frames, ledger, stop - 20, stop)
        replay.refresh()
        for _ in range(3):
            batch = replay.sample(16, rng)
            assert batch is not None
            assert batch.observations.dtype == torch.uint8
            check(batch)
            drawn |= set(batch.actions.tolist())
    assert len(drawn) > 0.5 * ticks * (EPISODE - 1) / EPISODE


def test_nothing_to_sample_is_none(blueprint: Blueprint, make_rings: Any, play: Any) -> None:
    replay = Replay(*make_rings(blueprint, 300), LEARNING)
    assert replay.refresh() == 0
    assert replay.sample(4, np.random.default_rng(0)) is None
    assert replay.ticks == 0


def test_a_slow_learner_never_gets_a_lost_frame(
    blueprint: Blueprint, make_rings: Any, play: Any
) -> None:
    frames, ledger = make_rings(blueprint, 300)
    replay, rng = Replay(frames, ledger, LEARNING), np.random.default_rng(0)
    play(frames, ledger, 0, 290)
    replay.refresh()
    play(frames, ledger, 290, 500)
    for _ in range(20):
        batch = replay.sample(16, rng)
        assert batch is not None
        assert batch.actions.min() >= 500 - 300
        check(batch)
    play(frames, ledger, 500, 900)
    assert replay.sample(16, rng) is None
    replay.refresh()
    batch = replay.sample(16, rng)
    assert batch is not None
    check(batch)


def test_samples_torn_during_the_copy_are_drawn_again(
    blueprint: Blueprint, make_rings: Any, play: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames, ledger = make_rings(blueprint, 300)
    replay, rng = Replay(frames, ledger, LEARNING), np.random.default_rng(0)
    play(frames, ledger, 0, 300)
    replay.refresh()
    select, at = torch.index_select, [300]

    def select_while_the_world_goes_on(*args: Any, **kwargs: Any) -> torch.Tensor:
        play(frames, ledger, at[0], at[0] + 30)
        at[0] += 30
        return select(*args, **kwargs)

    monkeypatch.setattr(torch, "index_select", select_while_the_world_goes_on)
    batch = replay.sample(64, rng)
    assert batch is not None
    assert at[0] > 300 + 60
    check(batch)


def test_gather_takes_vectors_too(make_blueprint: Any, make_rings: Any) -> None:
    frames, _ = make_rings(make_blueprint((3,), "float32", 2), 20)
    for tick in range(10):
        frames.publish(tick, np.full(3, tick, np.float32), 5 if tick >= 5 else 0)
    gather = FrameGather(frames)
    out = gather.buffer(3)
    whole = gather.gather(np.array([4, 5, 11]), out)
    assert whole.tolist() == [True, True, False]
    assert out[:2, :, 0].tolist() == [[3.0, 4.0], [5.0, 5.0]]


def test_a_stack_with_a_frame_being_written_is_not_whole(
    blueprint: Blueprint, make_rings: Any, play: Any
) -> None:
    frames, ledger = make_rings(blueprint, 300)
    play(frames, ledger, 0, 24)
    frames.numbers[10] = -1
    gather = FrameGather(frames)
    numbers = np.arange(8, 16)
    whole = gather.gather(numbers, gather.buffer(len(numbers)))
    assert numbers[~whole].tolist() == [10, 11, 12, 13]


def test_a_backlog_is_taken_in_by_pieces(
    blueprint: Blueprint, make_rings: Any, play: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rtagent.learning.replay.ROWS_PER_REFRESH", 70)
    frames, ledger = make_rings(blueprint, 300)
    play(frames, ledger, 0, 200)
    replay = Replay(frames, ledger, LEARNING)
    assert [replay.refresh() for _ in range(4)] == [70, 70, 60, 0]
    whole = Replay(frames, ledger, LEARNING)
    monkeypatch.undo()
    whole.refresh()
    assert whole.index.span == replay.index.span
