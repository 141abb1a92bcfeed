"""The common update: one optimizer and one target network for all, and staleness counted."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from rtagent.config import LearningConfig
from rtagent.learning import state as states
from rtagent.learning.algorithms.registry import algorithm_for
from rtagent.learning.device import HOST, Device
from rtagent.learning.optimizer import soft_update
from rtagent.learning.replay.batch import Batch
from rtagent.learning.shared_update import SharedUpdate
from rtagent.memory.learner_state import Progress
from rtagent.memory.weights import WeightsInfo
from rtagent.policy import networks
from tests.learning.local_update import LocalUpdate

B = 8


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))


def batch(seed: int) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    return Batch(
        observations=torch.randn(B, 3, generator=generator),
        actions=torch.randint(0, 4, (B,), generator=generator),
        rewards=torch.randn(B, generator=generator), discounts=torch.full((B,), 0.9),
        next_observations=torch.randn(B, 3, generator=generator),
        terminals=torch.rand(B, generator=generator) < 0.2, weights=torch.ones(B),
    )


def beside(
    first: SharedUpdate, module: torch.nn.Module, device: Device = HOST
) -> SharedUpdate:
    """Another learner of the same state, whose network is this."""
    learning = first.learning
    return SharedUpdate(
        algorithm_for(module, learning), first.state, first.weights, learning, device
    )


def make(
    count: int, module: Callable[[], torch.nn.Module] = network, **settings: Any
) -> list[SharedUpdate]:
    """Learners that share what they learn."""
    learning = LearningConfig(precision="float32", publish_every=3, **settings)
    first = SharedUpdate.private(module(), learning)
    first.weights.publish(networks.flattened(module()), WeightsInfo(5, 0))
    return [first] + [beside(first, module()) for _ in range(count - 1)]


def turn(update: SharedUpdate, seed: int) -> None:
    progress = update.refresh()
    update.apply(update.compute(batch(seed), progress.updates))


@pytest.mark.parametrize(
    "settings", [{"target_period": 4}, {"target_tau": 0.1}, {"gradient_clip": 0.05}]
)
def test_learners_in_turn_learn_what_one_alone_learns(settings: dict[str, Any]) -> None:
    updates = make(3, **settings)
    private = SharedUpdate.private(network(), updates[0].learning)
    alone = LocalUpdate(network(), updates[0].learning)
    for step in range(20):
        turn(updates[step % 3], step)
        assert private.step(batch(step)).updates == step
        alone.step(batch(step))
    for update in (updates[0], private):
        update.refresh()
        for mine, theirs in (
            (update.algorithm.network, alone.algorithm.network),
            (update.algorithm.target, alone.algorithm.target),
        ):
            for a, b in zip(mine.parameters(), theirs.parameters(), strict=True):
                assert torch.allclose(a, b, atol=1e-5)
        assert update.state.progress == Progress(20, 20, 20 * B)


@pytest.mark.parametrize(
    ("settings", "step"),
    [
        ({}, 1e-3),
        ({"learning_rate_steps": 10_000, "learning_rate_end_factor": 0.2}, 6e-4),
    ],
)
def test_moments_that_begin_anew_are_corrected_for_that(
    settings: dict[str, Any], step: float
) -> None:
    """Weights that others have trained come without moments: the first step is one of alpha."""
    (update,) = make(1, learning_rate=1e-3, **settings)
    before = update.state.current.weights.copy()
    states.put(states.begin(before, 5000), update.state)
    progress = update.refresh()
    gradient = update.compute(batch(0), progress.updates)
    values = update.gradient.numpy().copy()
    update.apply(gradient)
    moved = (update.state.current.weights - before)[np.abs(values) > 1e-4]
    assert len(moved) > 20
    np.testing.assert_allclose(np.abs(moved), step, rtol=1e-2)


def test_staleness_is_what_others_applied_meanwhile() -> None:
    first, second = make(2)
    progress = first.refresh()
    late = first.compute(batch(0), progress.updates)
    assert first.staleness(late) == 0
    for seed in range(3):
        turn(second, seed)
    assert first.staleness(late) == 3


def test_weights_are_published_in_their_period() -> None:
    (update,) = make(1)
    published = []
    for step in range(7):
        turn(update, step)
        published.append(update.weights.info())
    assert [info.updates for info in published if info] == [0, 0, 3, 3, 3, 6, 6]
    assert [info.version for info in published if info] == [5, 5, 6, 6, 6, 7, 7]
    flat = np.empty(len(update.state.current.weights), np.float32)
    update.publish()
    update.weights.read(flat)
    np.testing.assert_array_equal(flat, update.state.current.weights)


def test_a_target_left_behind_by_a_death_is_brought_up_to_date() -> None:
    first, second = make(2, target_period=2)
    turn(first, 0)
    # The second update is committed, and its learner dies before the target follows.
    first._update_target = lambda updates: None  # type: ignore[method-assign]
    turn(first, 1)
    assert second.state.target_updates == 0
    turn(second, 2)
    assert second.state.target_updates == 3
    np.testing.assert_array_equal(second.state.target, second.state.current.weights)


def test_averages_of_a_normalisation_travel_with_the_weights() -> None:
    def normalised() -> torch.nn.Module:
        torch.manual_seed(0)
        return torch.nn.Sequential(
            torch.nn.Linear(3, 16), torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 4)
        )

    first, second = make(2, normalised)
    for step in range(5):
        turn(first, step)
    second.refresh()
    mine, theirs = first.algorithm.network[1], second.algorithm.network[1]  # type: ignore[index]
    assert torch.equal(mine.running_mean, theirs.running_mean)
    assert mine.running_mean.abs().sum() > 0


def test_a_normalisation_that_is_frozen_stays_frozen() -> None:
    def frozen() -> torch.nn.Module:
        return torch.nn.Sequential(
            torch.nn.Linear(3, 16), torch.nn.BatchNorm1d(16).eval(), torch.nn.Linear(16, 4)
        )

    (update,) = make(1, frozen)
    for step in range(3):
        turn(update, step)
    update.refresh()
    assert not update.algorithm.network[1].running_mean.any()  # type: ignore[index]


def test_an_embedding_learns_the_same_with_sparse_gradients() -> None:
    class Looked(torch.nn.Module):
        def __init__(self, *, sparse: bool) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.table = torch.nn.Embedding(5, 8, sparse=sparse)
            self.last = torch.nn.Linear(8, 4)

        def forward(self, observations: torch.Tensor) -> torch.Tensor:
            rows = observations[:, 0].abs().long().clamp(max=4)
            return self.last(self.table(rows))  # type: ignore[no-any-return]

    (dense,), (sparse,) = (make(1, partial(Looked, sparse=sparse)) for sparse in (False, True))
    for step in range(3):
        turn(dense, step)
        turn(sparse, step)
    np.testing.assert_array_equal(dense.state.current.weights, sparse.state.current.weights)
    assert np.abs(sparse.state.current.mean[:40]).max() > 0.0


def test_a_frozen_layer_stays_as_it_is() -> None:
    def frozen() -> torch.nn.Module:
        module = network()
        module[0].requires_grad_(False)  # type: ignore[index]
        return module

    (update,) = make(1, frozen)
    for step in range(3):
        turn(update, step)
    update.refresh()
    assert torch.equal(update.algorithm.network[0].weight, network()[0].weight)  # type: ignore[index]
    assert not torch.equal(update.algorithm.network[2].weight, network()[2].weight)  # type: ignore[index]


class Masked(torch.nn.Module):
    """Shuts one of sixteen features by constants, which do not learn."""

    def __init__(self) -> None:
        super().__init__()
        shut = torch.zeros(16)
        shut[3] = -torch.inf
        self.register_buffer("mask", shut)
        self.frozen = torch.nn.Parameter(shut.clone(), requires_grad=False)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return features + self.mask + self.frozen


@pytest.mark.parametrize("device", [HOST, Device(torch.device("cpu"), nullcontext)])
@pytest.mark.parametrize("settings", [{"target_tau": 0.1}, {"target_period": 1}])
def test_an_infinite_constant_is_in_the_target_too(
    settings: dict[str, Any], device: Device
) -> None:
    """It was no number there, so that no later update was finite."""
    module = network()
    module.insert(1, Masked())  # type: ignore[operator]
    learning = LearningConfig(precision="float32", **settings)
    update = SharedUpdate.private(module, learning, device=device)
    for step in range(3):
        assert update.step(batch(step)).finite
    update.store()
    assert np.isneginf(update.state.target).sum() == 2
    assert not np.isnan(update.state.target).any()


def test_soft_update_follows_its_equation() -> None:
    target, online, out = np.float32([1.0, 2.0]), np.float32([5.0, 0.0]), np.empty(2, np.float32)
    soft_update(target, online, 0.25, out)
    np.testing.assert_allclose(out, [0.75 * 1.0 + 0.25 * 5.0, 0.75 * 2.0])
