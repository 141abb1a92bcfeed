"""Sampling against the formulas of Schaul et al. (2016), and what learners share of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rtagent.clock import VirtualClock
from rtagent.config import LearningConfig
from rtagent.learning.replay.batch import Batch
from rtagent.learning.replay.powers import SMALLEST_ERROR
from rtagent.learning.replay.replay import Replay
from rtagent.learning.replay.sampling import Drawn, Prioritized
from rtagent.learning.replay.transitions import DecisionIndex
from rtagent.memory.frames import FrameRing
from rtagent.memory.ledger import Ledger
from rtagent.memory.priorities import Priorities
from tests.rows import private_rings, write_row

CAPACITY = 200
ALPHA = 0.7
LEARNING = LearningConfig(n_step=1, prioritized=True, priority_exponent=ALPHA)


class World:
    """Rings of one long episode, and the priorities that learners share."""

    def __init__(self, rings: tuple[FrameRing, Ledger]) -> None:
        self.rings = rings
        self.priorities = Priorities.private(CAPACITY, VirtualClock())

    def play(self, start: int, stop: int) -> None:
        frames, ledger = self.rings
        for tick in range(start, stop):
            frames.publish(tick, np.float32([tick]), 0)
            write_row(ledger, tick)

    def learner(self, ticks: int = 0, *, uniform: bool = False) -> Replay:
        """A learner's replay that has taken in all rows, after so many ticks."""
        self.play(self.rings[1].newest + 1, ticks)
        replay = Replay(*self.rings, LEARNING, None if uniform else self.priorities)
        replay.catch_up()
        return replay


@pytest.fixture
def world(make_blueprint: Any) -> World:
    return World(private_rings(make_blueprint((1,), "float32", 1), CAPACITY))


def sampled(replay: Replay, count: int, seed: int = 0, beta: float = 1.0) -> Batch:
    """A batch; there is one."""
    batch = replay.sample(count, np.random.default_rng(seed), beta)
    assert batch is not None
    return batch


def drawn_from(world: World, places: np.ndarray) -> dict[int, float]:
    """The frames that the priorities give for some places, and their priorities."""
    drawn = world.priorities.draw(places)
    return dict(zip(drawn[0].tolist(), drawn[1].tolist(), strict=True))


def shares(replay: Replay, rng: np.random.Generator, batches: int = 400) -> dict[int, float]:
    """How often each transition is drawn, as a fraction."""
    counts: dict[int, int] = {}
    for _ in range(batches):
        batch = replay.sample(64, rng)
        assert batch.observations.flatten().tolist() == batch.frames.tolist()
        for frame in batch.frames.tolist():
            counts[frame] = counts.get(frame, 0) + 1
    return {frame: count / (64 * batches) for frame, count in counts.items()}


def test_uniform_means_all_with_the_same_probability(world: World) -> None:
    found = shares(world.learner(42, uniform=True), np.random.default_rng(0))
    assert sorted(found) == list(range(40))
    np.testing.assert_allclose(list(found.values()), 1 / 40, rtol=0.2)


def test_probabilities_follow_the_errors(world: World) -> None:
    replay = world.learner(42)
    rng = np.random.default_rng(0)
    errors = rng.normal(size=40) * 3.0
    errors[5] = 0.0
    for start in range(0, 40, 10):
        batch = as_batch(replay, np.arange(start, start + 10))
        replay.update_priorities(batch, torch.tensor(errors[start : start + 10]))
    found = shares(replay, rng)
    wanted = (np.abs(errors) + SMALLEST_ERROR) ** ALPHA
    wanted /= wanted.sum()
    for frame, probability in enumerate(wanted.tolist()):
        assert found.get(frame, 0.0) == pytest.approx(probability, rel=0.1, abs=5e-4)


def as_batch(replay: Replay, frames: np.ndarray) -> Any:
    """A batch of certain transitions, as far as its errors are concerned."""
    batch = sampled(replay, len(frames))
    batch.frames[:] = frames
    return batch


@pytest.mark.parametrize("beta", [0.0, 0.4, 1.0])
def test_weights_are_those_of_the_paper(beta: float, world: World) -> None:
    replay = world.learner(42)
    errors = np.linspace(0.1, 5.0, 40)
    replay.update_priorities(as_batch(replay, np.arange(40)), torch.tensor(errors))
    batch = sampled(replay, 16, 1, beta)
    powers = (errors + SMALLEST_ERROR) ** ALPHA
    probability = powers / powers.sum()
    wanted = [(40 * probability[frame]) ** -beta for frame in batch.frames]
    np.testing.assert_allclose(batch.weights, np.array(wanted) / max(wanted), rtol=1e-5)
    assert batch.weights.dtype == torch.float32
    largest = replay.largest_weight(replay.drawn_priorities, beta)
    assert largest == pytest.approx(max(wanted))


def test_each_stratum_gives_one_transition(world: World) -> None:
    assert sampled(world.learner(66), 64).frames.tolist() == list(range(64))


def test_learners_share_errors_but_not_their_position(world: World) -> None:
    one = world.learner(42)
    one.update_priorities(as_batch(one, np.arange(40)), torch.zeros(40))
    one.update_priorities(as_batch(one, np.array([0])), torch.tensor([1e3]))
    # Its large error, and the largest priority for what is new.
    assert set(sampled(world.learner(44), 64).frames.tolist()) == {0, 40, 41}
    # The first learner has not seen frames 40 and 41 yet: it draws again.
    assert set(sampled(one, 64).frames.tolist()) == {0}
    one.catch_up()
    assert set(sampled(one, 64).frames.tolist()) == {0, 40, 41}


def test_what_could_not_be_noted_because_of_the_lock_is_noted_later(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    replay = world.learner(42)
    world.play(42, 44)
    with monkeypatch.context() as patch:
        patch.setattr(world.priorities, "advance", lambda frames, oldest: False)
        replay.catch_up()
    assert not {40, 41} & set(sampled(replay, 256).frames.tolist())
    replay.catch_up()
    assert {40, 41} <= set(sampled(replay, 256).frames.tolist())


def test_a_draw_that_cannot_be_completed_is_none(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = world.learner(42)
    world.learner(44)
    draws = iter([world.priorities.draw(np.zeros(64)), None])
    monkeypatch.setattr(world.priorities, "draw", lambda places: next(draws))
    assert one.sample(64, np.random.default_rng(0)) is None


def test_lost_transitions_are_not_drawn(world: World) -> None:
    replay, rng = world.learner(150), np.random.default_rng(0)
    for ring in world.rings:
        ring.raise_floor(100)
    assert min(sampled(replay, 64).frames) >= 100
    replay.catch_up()
    assert min(drawn_from(world, np.zeros(64))) >= 100
    world.play(150, 500)
    assert replay.sample(64, rng) is None
    replay.catch_up()
    found = shares(replay, rng, 40)
    oldest = world.rings[0].oldest
    assert min(found) >= oldest
    assert len(found) == 498 - oldest


def test_a_transition_without_its_frame_is_given_up(world: World) -> None:
    replay = world.learner(42)
    # It is about half of what is drawn.
    replay.update_priorities(as_batch(replay, np.array([20])), torch.tensor([200.0]))
    world.rings[0].stamps[20] = -1
    batch = sampled(replay, 16)
    assert not {19, 20} & set(batch.frames.tolist())
    # The weights are those of the transitions drawn in its place.
    assert batch.weights.tolist() == [1.0] * 16
    assert 20 not in drawn_from(world, np.zeros(1000))


def test_errors_that_are_not_finite_change_nothing(world: World) -> None:
    replay = world.learner(42)
    errors = torch.tensor([float("nan"), float("inf"), 2.0])
    replay.update_priorities(as_batch(replay, np.array([3, 4, 5])), errors)
    found = drawn_from(world, np.full(400, 0.5))
    assert found[3] == found[4] == 1.0
    assert found[5] == pytest.approx((2.0 + SMALLEST_ERROR) ** ALPHA)


def test_nothing_to_draw_is_none(world: World) -> None:
    index = DecisionIndex(10, world.rings[1].dtype["action"], 0.9, 1)
    sampler, rng = Prioritized(world.priorities, ALPHA), np.random.default_rng(0)
    assert sampler.draw(4, index, rng) is None


def test_a_draw_is_mended_in_place() -> None:
    drawn = Drawn(np.array([1, 2, 3]), np.array([0.1, 0.2, 0.3]))
    drawn.put(np.array([2, 0]), Drawn(np.array([9, 8]), np.array([0.9, 0.8])))
    assert drawn.serials.tolist() == [8, 2, 9]
    assert drawn.priorities.tolist() == [0.8, 0.2, 0.9]
    drawn.put(np.array([1]), Drawn(np.array([-1]), np.array([0.7]), known=False))
    assert not drawn.known
