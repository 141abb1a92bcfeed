"""Sampling against the formulas of Schaul et al. (2016), and what learners share of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from rtagent.clock import VirtualClock
from rtagent.config import LearningConfig
from rtagent.learning.replay.powers import SMALLEST_ERROR
from rtagent.learning.replay.replay import Replay
from rtagent.learning.replay.sampling import Drawn, Prioritized
from rtagent.learning.replay.transitions import DecisionIndex
from rtagent.memory.arena import Arena
from rtagent.memory.frames import FrameRing
from rtagent.memory.ledger import Ledger
from rtagent.memory.priorities import Priorities
from rtagent.memory.robust_lock import RobustLock

CAPACITY = 200
ALPHA = 0.7
LEARNING = LearningConfig(n_step=1, prioritized=True, priority_exponent=ALPHA)


@pytest.fixture
def lock() -> Iterator[RobustLock]:
    arena = Arena("test", 1)
    found = RobustLock(arena.handle)
    yield found
    found.close()
    arena.close()


@pytest.fixture
def make_priorities(
    lock: RobustLock, shared_bytes: Callable[[int], memoryview]
) -> Callable[[], Priorities]:
    """Makes views of one tree."""
    memory = shared_bytes(Priorities.size(CAPACITY))
    memory[:] = bytes(len(memory))
    Priorities.format(memory)
    return lambda: Priorities(memory, CAPACITY, lock, VirtualClock())


@pytest.fixture
def rings(make_blueprint: Any, make_rings: Any) -> tuple[FrameRing, Ledger]:
    found: tuple[FrameRing, Ledger] = make_rings(make_blueprint((1,), "float32", 1), CAPACITY)
    return found


@pytest.fixture
def play(rings: tuple[FrameRing, Ledger], write_row: Any) -> Callable[[int, int], None]:
    """Play ticks of one long episode."""
    frames, ledger = rings

    def ticks(start: int, stop: int) -> None:
        for tick in range(start, stop):
            frames.publish(tick, np.float32([tick]), 0)
            write_row(ledger, tick)

    return ticks


def caught_up(replay: Replay) -> Replay:
    while replay.refresh():
        pass
    return replay


def shares(replay: Replay, rng: np.random.Generator, batches: int = 400) -> dict[int, float]:
    """How often each transition is drawn, as a fraction."""
    counts: dict[int, int] = {}
    for _ in range(batches):
        batch = replay.sample(64, rng)
        assert batch is not None
        assert batch.observations.flatten().tolist() == batch.frames.tolist()
        for frame in batch.frames.tolist():
            counts[frame] = counts.get(frame, 0) + 1
    return {frame: count / (64 * batches) for frame, count in counts.items()}


def test_uniform_means_all_with_the_same_probability(rings: Any, play: Any) -> None:
    play(0, 42)
    found = shares(caught_up(Replay(*rings, LEARNING)), np.random.default_rng(0))
    assert sorted(found) == list(range(40))
    np.testing.assert_allclose(list(found.values()), 1 / 40, rtol=0.2)


def test_probabilities_follow_the_errors(rings: Any, play: Any, make_priorities: Any) -> None:
    play(0, 42)
    replay = caught_up(Replay(*rings, LEARNING, make_priorities()))
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
    batch = replay.sample(len(frames), np.random.default_rng(0))
    assert batch is not None
    batch.frames[:] = frames
    return batch


@pytest.mark.parametrize("beta", [0.0, 0.4, 1.0])
def test_weights_are_those_of_the_paper(
    beta: float, rings: Any, play: Any, make_priorities: Any
) -> None:
    play(0, 42)
    replay = caught_up(Replay(*rings, LEARNING, make_priorities()))
    errors = np.linspace(0.1, 5.0, 40)
    replay.update_priorities(as_batch(replay, np.arange(40)), torch.tensor(errors))
    batch = replay.sample(16, np.random.default_rng(1), beta)
    assert batch is not None
    powers = (errors + SMALLEST_ERROR) ** ALPHA
    probability = powers / powers.sum()
    wanted = [(40 * probability[frame]) ** -beta for frame in batch.frames]
    np.testing.assert_allclose(batch.weights, np.array(wanted) / max(wanted), rtol=1e-5)
    assert batch.weights.dtype == torch.float32


def test_each_stratum_gives_one_transition(rings: Any, play: Any, make_priorities: Any) -> None:
    play(0, 66)
    replay = caught_up(Replay(*rings, LEARNING, make_priorities()))
    batch = replay.sample(64, np.random.default_rng(0))
    assert batch is not None
    assert batch.frames.tolist() == list(range(64))


def test_learners_share_errors_but_not_their_position(
    rings: Any, play: Any, make_priorities: Any
) -> None:
    play(0, 42)
    one = caught_up(Replay(*rings, LEARNING, make_priorities()))
    one.update_priorities(as_batch(one, np.arange(40)), torch.full((40,), 1e-3))
    one.update_priorities(as_batch(one, np.array([17])), torch.tensor([1e3]))
    play(42, 44)
    other = caught_up(Replay(*rings, LEARNING, make_priorities()))
    rng = np.random.default_rng(0)
    batch = other.sample(64, rng)
    assert batch is not None
    # Its large error, and the largest priority for what is new.
    assert set(batch.frames.tolist()) == {17, 40, 41}
    # The first learner has not seen frames 40 and 41 yet: it draws again.
    batch = one.sample(64, rng)
    assert batch is not None
    assert set(batch.frames.tolist()) == {17}
    batch = caught_up(one).sample(64, rng)
    assert batch is not None
    assert set(batch.frames.tolist()) == {17, 40, 41}


def test_what_is_lost_is_not_drawn(rings: Any, play: Any, make_priorities: Any) -> None:
    play(0, 150)
    replay, rng = Replay(*rings, LEARNING, make_priorities()), np.random.default_rng(0)
    caught_up(replay)
    for ring in rings:
        ring.raise_floor(100)
    assert min(replay.sample(64, rng).frames) >= 100  # type: ignore[union-attr]
    play(150, 500)
    assert replay.sample(64, rng) is None
    found = shares(caught_up(replay), rng, 40)
    oldest = rings[0].oldest
    assert min(found) >= oldest
    assert len(found) == 498 - oldest


def test_a_transition_without_its_frame_is_given_up(
    rings: Any, play: Any, make_priorities: Any
) -> None:
    play(0, 42)
    replay, rng = Replay(*rings, LEARNING, make_priorities()), np.random.default_rng(0)
    caught_up(replay)
    replay.update_priorities(as_batch(replay, np.array([20])), torch.tensor([1e9]))
    rings[0].stamps[20] = -1
    batch = replay.sample(16, rng)
    assert batch is not None
    assert not {19, 20} & set(batch.frames.tolist())
    assert 20 not in make_priorities().draw(np.zeros(1000))[0]


def test_errors_that_are_not_finite_change_nothing(
    rings: Any, play: Any, make_priorities: Any
) -> None:
    play(0, 42)
    replay = caught_up(Replay(*rings, LEARNING, make_priorities()))
    errors = torch.tensor([float("nan"), float("inf"), 2.0])
    replay.update_priorities(as_batch(replay, np.array([3, 4, 5])), errors)
    frames, values = make_priorities().draw(np.full(400, 0.5))
    found = dict(zip(frames.tolist(), values.tolist(), strict=True))
    assert found[3] == found[4] == 1.0
    assert found[5] == pytest.approx((2.0 + SMALLEST_ERROR) ** ALPHA)


def test_an_exponent_of_zero_is_uniform(make_priorities: Any) -> None:
    priorities = make_priorities()
    priorities.advance(np.arange(10), 0)
    Prioritized(priorities, 0.0).update(np.arange(3), np.array([0.0, 5.0, 1e9]))
    assert set(priorities.draw(np.zeros(100))[1].tolist()) == {1.0}


def test_nothing_to_draw_is_none(make_priorities: Any, rings: Any) -> None:
    index = DecisionIndex(10, rings[1].dtype["action"], 0.9, 1)
    assert Prioritized(make_priorities(), ALPHA).draw(4, index, np.random.default_rng(0)) is None


def test_a_draw_is_mended_in_place() -> None:
    drawn = Drawn(np.array([1, 2, 3]), np.array([0.1, 0.2, 0.3]))
    drawn.put(np.array([2, 0]), Drawn(np.array([9, 8]), np.array([0.9, 0.8])))
    assert drawn.serials.tolist() == [8, 2, 9]
    assert drawn.priorities is not None
    assert drawn.priorities.tolist() == [0.8, 0.2, 0.9]
    drawn.put(np.array([1]), Drawn(np.array([-1]), np.array([0.7]), known=False))
    assert not drawn.known


def test_a_transition_without_an_error_is_not_given_up() -> None:
    told: list[np.ndarray] = []
    shared: Any = SimpleNamespace(update=lambda frames, priorities: told.append(priorities))
    Prioritized(shared, 0.5).update(np.array([3, 4]), np.array([0.0, -0.25]))
    np.testing.assert_allclose(told[0], [1e-3, (0.25 + 1e-6) ** 0.5])
