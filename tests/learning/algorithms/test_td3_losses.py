"""The losses of TD3 against slow transcriptions of their equations, sample by sample."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rtagent.learning.algorithms.td3 import actor_loss, critics_loss, smoothed_actions, td3_targets

COUNT, PARTS = 33, 3

Array = np.ndarray[Any, Any]


@pytest.fixture(params=range(3))
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    return np.random.default_rng(request.param)


def normal(rng: np.random.Generator, *shape: int) -> Array:
    return rng.normal(0, 2, shape).astype(np.float32)


def tensors(*arrays: Array) -> list[torch.Tensor]:
    return [torch.from_numpy(array) for array in arrays]


def test_smoothed_actions_are_the_equation(rng: np.random.Generator) -> None:
    low, high = np.float32([-1.0, 0.0, -8.0]), np.float32([1.0, 0.5, 2.0])
    actions = rng.uniform(low, high, (COUNT, PARTS)).astype(np.float32)
    noise = normal(rng, COUNT, PARTS)
    wanted = np.empty_like(actions)
    for i in range(COUNT):
        for part in range(PARTS):
            moved = min(max(noise[i][part], -0.5), 0.5) * (high[part] - low[part]) / 2
            wanted[i, part] = min(max(actions[i][part] + moved, low[part]), high[part])
    found = smoothed_actions(*tensors(actions, noise), 0.5, *tensors(low, high))
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-6, atol=1e-6)
    assert (wanted == low).any()
    assert (wanted == high).any()


def test_targets_take_the_least_hopeful_critic(rng: np.random.Generator) -> None:
    rewards, next_values = normal(rng, COUNT), normal(rng, 2, COUNT)
    discounts = (0.9 ** rng.integers(1, 9, COUNT)).astype(np.float32)
    terminals = rng.random(COUNT) < 0.3
    wanted = [
        rewards[i] if terminals[i]
        else rewards[i] + discounts[i] * min(next_values[0][i], next_values[1][i])
        for i in range(COUNT)
    ]
    found = td3_targets(*tensors(rewards, discounts, next_values, terminals))
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("told", [float("inf"), float("nan")])
def test_a_terminal_state_has_no_value_whatever_the_critics_say(told: float) -> None:
    found = td3_targets(
        torch.tensor([2.0]), torch.tensor([0.9]), torch.full((2, 1), told), torch.tensor([True])
    )
    assert found.tolist() == [2.0]


def test_the_critics_loss_is_the_weighted_equation(rng: np.random.Generator) -> None:
    values, targets = normal(rng, 2, COUNT), normal(rng, COUNT)
    weights = rng.random(COUNT).astype(np.float32)
    wanted = sum(
        sum(weights[i] * (targets[i] - values[critic][i]) ** 2 for i in range(COUNT)) / COUNT
        for critic in range(2)
    )
    far = [
        sum(abs(targets[i] - values[critic][i]) for critic in range(2)) / 2 for i in range(COUNT)
    ]
    loss, errors = critics_loss(*tensors(values, targets, weights))
    assert float(loss) == pytest.approx(float(wanted), rel=1e-5)
    np.testing.assert_allclose(errors.numpy(), far, rtol=1e-5, atol=1e-6)


def test_the_actor_loss_is_the_weighted_equation(rng: np.random.Generator) -> None:
    values, weights = normal(rng, COUNT), rng.random(COUNT).astype(np.float32)
    wanted = -sum(weights[i] * values[i] for i in range(COUNT)) / COUNT
    assert float(actor_loss(*tensors(values, weights))) == pytest.approx(float(wanted), rel=1e-4)


def test_no_gradient_through_the_target() -> None:
    next_values = torch.ones(2, 1, requires_grad=True)
    actions = torch.zeros(1, 1, requires_grad=True)
    one = torch.ones(1)
    targets = td3_targets(one, one, next_values, torch.tensor([False]))
    smoothed = smoothed_actions(actions, torch.zeros(1, 1), 0.5, -one, one)
    assert not targets.requires_grad
    assert not smoothed.requires_grad
    values = torch.zeros(2, 1, requires_grad=True)
    loss, errors = critics_loss(values, targets, one)
    loss.backward()
    assert values.grad is not None
    assert values.grad.tolist() == [[-4.0], [-4.0]]
    assert not errors.requires_grad
