"""Rollouts of the ledger: the newest decisions, in order, each once, with their probabilities."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch

from rtagent.config import LearningConfig
from rtagent.config_sources import parse_config
from rtagent.errors import UserError
from rtagent.learning.on_policy import OnPolicyBatches, part_of
from rtagent.learning.replay import rollouts
from rtagent.learning.replay.rollouts import Rollout, Rollouts
from rtagent.memory.blueprint import Blueprint
from rtagent.memory.ledger import TERMINATED, TRUNCATED
from rtagent.staggering.arbiter import Source
from tests.rows import private_rings, write_row

GAMMA = 0.9
CAPACITY = 512


class Rings:
    """A ledger and frames that a test writes.

    Attributes:
        rollouts: makes rollouts of them.
        events: that it has sent.
    """

    def __init__(self, blueprint: Blueprint) -> None:
        self.frames, self.ledger = private_rings(blueprint, CAPACITY)
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.tick, self.episode, self.start = 0, 0, 0
        self.rollouts = self.opened()

    def opened(self) -> Rollouts:
        learning = LearningConfig(gamma=GAMMA, n_step=8)
        return Rollouts(self.frames, self.ledger, learning, self.note)

    def note(self, kind: str, **details: Any) -> None:
        self.events.append((kind, details))

    def add(self, *, flags: int = 0, acted: bool = True, **values: Any) -> None:
        """One tick, which executes what was computed from the frame before, or nothing."""
        tick = self.tick
        usual = {
            "observed": tick - 1, "action": tick % 4, "log_probability": -tick / 64.0,
            "reward": 1.0, "source": Source.AGENT,
        }
        if not acted:
            usual |= {"observed": -1, "log_probability": 0.0, "source": Source.DEFAULT}
        write_row(self.ledger, tick, **{
            **usual, "flags": flags, "episode": self.episode, **values
        })
        self.frames.publish(tick, np.full(3, tick, np.float32), self.start)
        self.tick += 1
        if flags:
            self.episode += 1
            self.start = self.tick

    def play(self, ticks: int) -> None:
        for _ in range(ticks):
            self.add()

    def rollout(self, count: int) -> Rollout | None:
        self.rollouts.refresh()
        return self.rollouts.newest(count)


@pytest.fixture
def rings(make_blueprint: Any) -> Rings:
    return Rings(make_blueprint())


def test_decisions_come_in_order_with_their_probabilities(rings: Rings) -> None:
    rings.play(12)
    found = rings.rollout(5)
    # The decision on frame 10 is not finished: its successor is not known.
    assert found.batch.frames.tolist() == [5, 6, 7, 8, 9]
    assert found.batch.observations[:, 0, 0].tolist() == [5, 6, 7, 8, 9]
    assert found.batch.actions.tolist() == [2, 3, 0, 1, 2]
    np.testing.assert_allclose(found.log_probabilities, [-k / 64 for k in range(6, 11)])
    assert found.continues.tolist() == [True] * 4 + [False]
    np.testing.assert_allclose(found.batch.discounts, GAMMA)
    assert rings.events == []


def test_no_decision_comes_twice_and_older_ones_are_left_out(rings: Rings) -> None:
    rings.play(12)
    assert rings.rollout(5) is not None
    assert rings.rollout(1) is None
    rings.play(20)
    found = rings.rollout(5)
    assert found.batch.frames.tolist() == [25, 26, 27, 28, 29]
    assert rings.rollout(1) is None
    # A row whose frame is not there yet has to wait.
    write_row(rings.ledger, rings.tick)
    assert rings.rollout(1) is None
    rings.play(1)
    assert rings.rollout(1).batch.frames.tolist() == [30]


def test_after_a_pause_rows_are_taken_in_by_pieces(
    rings: Rings, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, pieces = rings.ledger.read, []

    def noted(start: int, stop: int) -> Any:
        pieces.append((start, stop))
        return read(start, stop)

    monkeypatch.setattr(rings.ledger, "read", noted)
    monkeypatch.setattr(rollouts, "ROWS_PER_REFRESH", 8)
    rings.play(20)
    found = rings.rollout(5)
    assert pieces == [(0, 8), (8, 16), (16, 20)]
    assert found.batch.frames.tolist() == [13, 14, 15, 16, 17]


def test_rows_for_which_there_was_no_memory_are_not_taken_in_again(
    rings: Rings, monkeypatch: pytest.MonkeyPatch
) -> None:
    rings.play(20)
    index = rings.rollouts._index
    feed = index.feed

    def fail(rows: Any) -> None:
        feed(rows[:10])
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(index, "feed", fail)
        with pytest.raises(MemoryError):
            rings.rollouts.refresh()
    rings.play(10)
    found = rings.rollout(12)
    assert found.batch.frames.tolist() == [5, 6, 7, 8, *range(20, 28)]
    assert found.continues.tolist() == [True, True, True, False, *[True] * 7, False]


def test_a_new_reader_begins_with_new_decisions(rings: Rings) -> None:
    rings.play(12)
    rings.rollouts = rings.opened()
    rings.play(5)
    assert rings.rollout(4) is None
    assert rings.rollout(3).batch.frames.tolist() == [12, 13, 14]


def test_default_actions_belong_to_the_decision_before(rings: Rings) -> None:
    for acted in (True, True, False, False, True, True, True):
        rings.add(acted=acted)
    found = rings.rollout(3)
    assert found.batch.frames.tolist() == [0, 3, 4]
    np.testing.assert_allclose(found.batch.rewards, [1 + GAMMA + GAMMA**2, 1, 1], rtol=1e-6)
    np.testing.assert_allclose(found.batch.discounts, [GAMMA**3, GAMMA, GAMMA], rtol=1e-6)
    assert found.continues.tolist() == [True, True, False]


def test_an_action_executed_twice_is_one_decision(rings: Rings) -> None:
    rings.add()
    rings.add(observed=1 - 1, source=Source.REUSED, log_probability=-0.25)
    rings.add(observed=0, log_probability=-0.25)
    rings.add()
    rings.add()
    found = rings.rollout(2)
    assert found.batch.frames.tolist() == [0, 2]
    np.testing.assert_allclose(found.log_probabilities, [-0.25, -3 / 64])


@pytest.mark.parametrize("flag", [TERMINATED, TRUNCATED])
def test_a_chain_ends_with_its_episode(rings: Rings, flag: int) -> None:
    for tick in range(10):
        rings.add(flags=flag if tick == 4 else 0)
    found = rings.rollout(7)
    # Frame 4 was seen by nobody: the next episode begins with frame 5.
    assert found.batch.frames.tolist() == [0, 1, 2, 3, 5, 6, 7]
    assert found.continues.tolist() == [True, True, True, False, True, True, False]
    assert found.batch.terminals.tolist() == [False] * 3 + [flag == TERMINATED] + [False] * 3


def test_demonstrations_are_not_the_policy_s(rings: Rings) -> None:
    for tick in range(6):
        rings.add(worker=-1 if tick == 3 else 0)
    assert rings.rollout(4) is None


def test_the_longest_rollout_that_is_accepted_can_be_learned_from(rings: Rings) -> None:
    longest = CAPACITY // 2
    for rollout in (longest, longest + 1):
        with nullcontext() if rollout == longest else pytest.raises(UserError):
            parse_config({
                "learning": {"algorithm": "ppo", "learning_starts": 1, "rollout": rollout},
                "replay": {"capacity": CAPACITY},
            })
    while (found := rings.rollout(longest)) is None and not rings.events:
        rings.add()
    assert found is not None


def test_several_lost_rollouts_in_a_row_are_one_event(rings: Rings) -> None:
    """Decisions that take three ticks each."""
    for tick in range(2500):
        rings.add(acted=tick % 3 == 0)
        assert rings.rollout(250) is None
    (kind, details), = rings.events
    assert kind == "rollout_lost"
    assert details == {"decisions": 250, "ticks": 752, "replay_ticks": CAPACITY}
    rings.play(260)
    assert rings.rollout(250) is not None
    for tick in range(800):
        rings.add(acted=tick % 3 == 0)
        assert rings.rollout(250) is None
    assert len(rings.events) == 2


class EachTwice:
    """An algorithm that goes through a rollout of four twice."""

    def rollout_length(self, batch_size: int) -> int:
        return 4

    def updates_of(self, count: int, batch_size: int, rng: np.random.Generator) -> list[Any]:
        return [np.arange(count)[k::2] for k in (0, 1, 0, 1)]


def test_a_rollout_is_cut_into_the_batches_of_its_updates(rings: Rings) -> None:
    prepared = []

    def prepare(rollout: Rollout) -> Any:
        prepared.append(rollout)
        return rollout.batch

    algorithm: Any = EachTwice()
    batches = OnPolicyBatches(rings.rollouts, algorithm, prepare, np.random.default_rng(0))
    assert batches.take(2, 0.0) is None
    rings.play(6)
    frames = []
    assert not batches.rollout_is_done
    while (batch := batches.take(2, 0.0)) is not None:
        frames.append(batch.frames.tolist())
        assert batch.observations[:, 0, 0].tolist() == frames[-1]
        # What is one for all stays one for all.
        assert batch.advantages.shape == (1,)
        assert batches.rollout_is_done == (len(frames) == 4)
    assert frames == [[0, 2], [1, 3]] * 2
    assert len(prepared) == 1
    batches.close()


def test_no_batch_is_larger_than_one_that_is_asked_for_meanwhile(rings: Rings) -> None:
    algorithm: Any = EachTwice()
    batches = OnPolicyBatches(
        rings.rollouts, algorithm, lambda rollout: rollout.batch, np.random.default_rng(0)
    )
    rings.play(6)
    taken = [batches.take(size, 0.0) for size in (2, 1, 1, 2)]
    assert [None if each is None else each.frames.tolist() for each in taken] == [
        [0, 2], [1], [3], [0, 2],
    ]


def test_parts_are_copies(rings: Rings) -> None:
    rings.play(6)
    found = rings.rollout(4)
    part = part_of(found.batch, np.array([2, 0]))
    found.batch.observations.zero_()
    assert part.observations[:, 0, 0].tolist() == [2.0, 0.0]
    assert isinstance(part.rewards, torch.Tensor)
