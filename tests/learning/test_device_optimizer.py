"""The learned state on a device with its own memory; the processor stands in for a GPU."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rtagent.config import LearningConfig
from rtagent.learning import state as states
from rtagent.learning.device import Device
from rtagent.learning.device_optimizer import STORE_EVERY, checksum
from rtagent.learning.shared_update import SharedUpdate
from rtagent.memory import array_buffer
from rtagent.memory.learner_state import Progress
from tests.learning.test_device import FakeStream
from tests.learning.test_shared_update import B, batch, beside, network

APART = Device(torch.device("cpu"), FakeStream())


def alone(**settings: object) -> SharedUpdate:
    learning = LearningConfig(precision="float32", publish_every=1000, **settings)
    return SharedUpdate.private(network(), learning, device=APART)


def turn(update: SharedUpdate, seed: int, *, kept: bool = False) -> None:
    progress = update.refresh()
    update.apply(update.compute(batch(seed), progress.updates), alone=kept)


def flat(update: SharedUpdate) -> torch.Tensor:
    update.refresh()
    return torch.cat([each.detach().flatten() for each in update.algorithm.network.parameters()])


def test_steps_of_a_learner_that_is_alone_are_stored_now_and_then() -> None:
    update = alone()
    for step in range(1, 3 * STORE_EVERY):
        update.step(batch(step))
        assert update.progress == Progress(step, step, step * B)
        stored = step // STORE_EVERY * STORE_EVERY
        assert update.state.progress == Progress(stored, stored, stored * B)
    assert not np.array_equal(flat(update), update.state.current.weights)
    update.store()
    assert update.state.progress == update.progress
    np.testing.assert_array_equal(flat(update), update.state.current.weights)


def test_steps_beside_others_are_stored_at_once() -> None:
    update = alone()
    for step in range(1, 4):
        turn(update, step)
        assert update.state.progress.updates == step


@pytest.mark.parametrize("settings", [{"target_period": 4}, {"target_tau": 0.1}])
def test_who_goes_on_learns_what_one_learner_learns(settings: dict[str, object]) -> None:
    first, whole = alone(**settings), alone(**settings)
    second = beside(first, network(), APART)
    for step in range(24):
        # The first is alone until the second joins.
        turn((first, second)[step >= 10 and step % 2], step, kept=step < 9)
        whole.step(batch(step))
    for update in (first, second, whole):
        update.store()
    assert first.state.progress == whole.state.progress
    assert first.lost == second.lost == 0
    for mine, theirs in (
        (first.state.current.weights, whole.state.current.weights),
        (first.state.current.square, whole.state.current.square),
        (first.state.target, whole.state.target),
    ):
        np.testing.assert_array_equal(mine, theirs)


def test_steps_that_were_not_stored_before_another_stored_its_own_are_lost_and_counted() -> None:
    first = alone()
    second = beside(first, network(), APART)
    for step in range(3):
        turn(first, step, kept=True)
    turn(second, 3)
    assert first.state.progress.updates == 1
    turn(first, 4)
    assert first.lost == 3
    assert first.state.progress.updates == first.progress.updates == 2
    assert first.state.progress.steps == 2


def test_a_target_that_has_followed_lost_steps_is_lost_with_them() -> None:
    first = alone(target_period=5)
    second, begun = beside(first, network(), APART), first.state.target.copy()
    for step in range(6):
        turn(first, step, kept=True)
    turn(second, 6)
    # For a checkpoint, say.
    first.publish()
    for step in range(3):
        assert first.state.target_updates == 0
        np.testing.assert_array_equal(first.state.target, begun)
        turn(first, 7 + step)
    turn(first, 10)
    assert first.state.progress.updates == first.state.target_updates == 5
    np.testing.assert_array_equal(first.state.target, first.state.current.weights)


def test_a_gradient_on_lost_steps_has_missed_none() -> None:
    first = alone()
    second = beside(first, network(), APART)
    for step in range(3):
        turn(first, step, kept=True)
    progress = first.refresh()
    assert progress == Progress(3, 3, 3 * B)
    gradient = first.compute(batch(3), progress.updates)
    turn(second, 4)
    assert first.staleness(gradient) == 0


def test_a_gradient_is_as_stale_as_the_newest_state_says() -> None:
    first = alone()
    second = beside(first, network(), APART)
    progress = first.refresh()
    late = first.compute(batch(0), progress.updates)
    assert first.staleness(late) == 0
    for step in range(3):
        turn(second, step)
    assert first.staleness(late) == 3
    first.apply(late, alone=True)
    assert (first.progress.updates, first.lost) == (4, 0)


def test_who_publishes_for_the_dead_publishes_what_is_stored() -> None:
    first = alone()
    for step in range(3):
        turn(first, step)
    second = beside(first, network(), APART)
    found = np.empty(len(first.state.current.weights), np.float32)
    second.publish()
    info = second.weights.read(found)
    assert info.updates == 3
    np.testing.assert_array_equal(found, first.state.current.weights)


def test_a_state_put_from_outside_is_taken_over() -> None:
    update = alone()
    for step in range(3):
        update.step(batch(step))
    weights = update.state.current.weights.copy()
    states.put(states.begin(weights, 70), update.state)
    assert update.refresh() == Progress(70)
    update.step(batch(3))
    assert update.progress == Progress(71, 1, B)


def test_a_lowered_scale_is_stored_at_once() -> None:
    update = alone()
    other = beside(update, network(), APART)
    update.algorithm.precision = "float16"
    update.refresh()
    gradient = update.compute(batch(0), 0)
    update.lower_scale(gradient)
    assert update.progress.scale_exponent == 15
    assert update.state.progress.scale_exponent == 15
    assert not update.state.current.mean.any()
    turn(other, 1)
    assert update.progress.scale_exponent == 15


@pytest.mark.parametrize("count", [1, 2, 7, 1000])
def test_checksums_are_those_of_the_host(count: int) -> None:
    values = np.random.default_rng(count).normal(size=count).astype(np.float32)
    values[0] = np.nan
    assert checksum(torch.from_numpy(values)) == array_buffer.checksum(values)
