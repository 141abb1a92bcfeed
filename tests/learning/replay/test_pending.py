"""Learners are given the pending actions that the decisions saw, in a world in virtual time.

Several inference processes take random times, and each deposits its action for a tick of its own
choice; promises are broken, come late and are re-used, and episodes terminate or are truncated.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch

from rtagent.config import LearningConfig
from rtagent.learning.replay.batch import Batch, empty_batch
from rtagent.learning.replay.replay import Replay
from rtagent.learning.replay.rollouts import Rollouts
from rtagent.memory.actions import ActionSlots
from rtagent.memory.frames import FrameRing
from rtagent.memory.ledger import TERMINATED, TRUNCATED, Ledger
from rtagent.memory.pending import PendingActions, PendingReader
from rtagent.staggering.arbiter import Arbiter, Deposited, Source
from tests.conftest import make_blueprint
from tests.rows import private_rings, write_row

BLUEPRINT = make_blueprint(
    frame_shape=(1,), frame_dtype="float32", frame_stack=1, pending_actions=4
)
PENDING = PendingActions.of(BLUEPRINT)
CAPACITY = 1024
TICKS = 400
UNKNOWN = [-1, -1, -1, -1]


@dataclass
class Inference:
    """An inference process: the frame that it computes on, and the tick at which it is done."""

    frame: int = -1
    done: int = -1


@dataclass
class World:
    """Rings, slots, and a record of what happened.

    Attributes:
        seen: by frame, the pending actions that each inference on it was given.
        executed: the executed action of each tick.
        ends: last ticks of episodes, and their flags.
    """

    frames: FrameRing
    ledger: Ledger
    slots: ActionSlots
    seen: dict[int, list[list[int]]] = field(default_factory=dict)
    executed: list[int] = field(default_factory=list)
    ends: dict[int, int] = field(default_factory=dict)


def played(seed: int) -> World:
    """A run of `TICKS` ticks with four inference processes."""
    world = World(*private_rings(BLUEPRINT, CAPACITY), ActionSlots.private(BLUEPRINT))
    rng, reader = np.random.default_rng(seed), PendingReader(PENDING, world.ledger, world.slots)
    arbiter, workers = Arbiter(), [Inference() for _ in range(4)]
    start = episode = 0
    for tick in range(TICKS):
        choice = arbiter.choose(tick, world.slots)
        item = choice.deposit
        action = 0 if choice.source == Source.DEFAULT else item.action
        flags = int(rng.choice([0, TERMINATED, TRUNCATED], p=[0.94, 0.03, 0.03]))
        write_row(
            world.ledger, tick, observed=item.frame, reward=1.0, episode=episode,
            worker=item.worker, source=choice.source, flags=flags, action=action,
            pending=item.pending, log_probability=-1.0,
        )
        world.frames.publish(tick, np.array([tick], np.float32), start)
        world.executed.append(action)
        if flags:
            world.ends[tick] = flags
            start, episode = tick + 1, episode + 1
        for number, each in enumerate(workers):
            if each.frame >= 0 and each.done <= tick:
                seen = reader.read(each.frame)
                world.seen.setdefault(each.frame, []).append(seen.tolist())
                target = tick + int(rng.integers(0, 3))
                drawn = int(rng.integers(3))
                item = Deposited(number, each.frame, target, drawn, 1, float(tick), -1.0, seen)
                world.slots.deposit(item)
                each.frame = -1
            if each.frame < 0 and rng.random() < 0.5:
                each.frame, each.done = tick, tick + int(rng.integers(1, 7))
    return world


def decoded(vectors: torch.Tensor) -> list[list[int]]:
    """The pending actions that a network's inputs (B, width) encode."""
    one_hot = vectors.reshape(len(vectors), 4, 3)
    return torch.where(one_hot.sum(2) > 0, one_hot.argmax(2), -1).tolist()


def check(world: World, batch: Batch) -> None:
    """Compare a batch with the actions that inferences saw, or that were executed later."""
    rows = zip(
        batch.frames.tolist(), batch.next_observations[:, 0, 0].int().tolist(),
        batch.terminals.tolist(), decoded(batch.pending), decoded(batch.next_pending), strict=True,
    )
    for frame, following, terminal, pending, next_pending in rows:
        assert pending in world.seen[frame]
        if terminal:
            continue
        end = min((tick for tick in world.ends if tick > frame), default=following)
        executed = (world.executed[following + 1 : end + 1] + UNKNOWN)[:4]
        assert next_pending in [*world.seen.get(following, []), executed]


@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("seed", range(5))
def test_the_replay_gives_what_the_decisions_saw(seed: int, n_step: int, either_way: str) -> None:
    world = played(seed)
    learning = LearningConfig(n_step=n_step)
    replay = Replay(world.frames, world.ledger, learning)
    replay.catch_up()
    batch = replay.sample(500, np.random.default_rng(seed))
    check(world, batch)


def test_pending_actions_are_not_always_executed() -> None:
    """Otherwise the ledger's own actions would do."""
    world = played(0)
    broken = sum(
        any(a >= 0 and a != b for a, b in zip(seen, world.executed[frame + 1 :], strict=False))
        for frame, several in world.seen.items() for seen in several
    )
    assert broken > 10


@pytest.mark.parametrize("rows", [2, TICKS])
def test_after_truncation_pending_actions_are_the_executed_ones(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the last decisions of truncated episodes alone; their rows may come in pieces."""
    monkeypatch.setattr("rtagent.learning.replay.replay.ROWS_PER_REFRESH", rows)
    world = played(3)
    replay = Replay(world.frames, world.ledger, LearningConfig(n_step=1))
    replay.catch_up()
    found = replay.index.get(np.arange(*replay.index.span))
    cut_off = 0
    for frame, following, pending in zip(
        found.frame.tolist(), found.next_frame.tolist(), found.rows["next_pending"].tolist(),
        strict=True,
    ):
        end = min((tick for tick in world.ends if tick > frame), default=TICKS)
        decided = [int(each) for each in found.frame if frame < each <= end]
        if world.ends.get(end) == TRUNCATED and not decided and following < end:
            assert pending == (world.executed[following + 1 : end + 1] + UNKNOWN)[:4]
            cut_off += 1
    assert cut_off > 3


def test_rollouts_give_the_same_pending_actions() -> None:
    world = played(1)
    rollouts = Rollouts(world.frames, world.ledger, LearningConfig(algorithm="ppo"), print)
    rollouts._next_tick = 0
    rollouts.refresh()
    rollout = rollouts.newest(64)
    check(world, rollout.batch)


def test_an_empty_batch_has_the_shapes() -> None:
    batch = empty_batch(BLUEPRINT, 3)
    shapes: list[Any] = [tuple(each.shape) for each in (*batch.inputs, *batch.next_inputs)]
    assert shapes == [(3, 1, 1), (3, 12)] * 2
    assert len(empty_batch(make_blueprint(), 3).inputs) == 1
