"""The DQN loss against a slow transcription of its equation."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rtagent.learning.losses import dqn_loss, dqn_targets


def slow_loss(
    values: np.ndarray, actions: np.ndarray, rewards: np.ndarray, discounts: np.ndarray,
    next_values: np.ndarray, terminals: np.ndarray,
) -> tuple[float, list[float]]:
    """Sample by sample: y = R + gamma**n max Q', Huber with threshold 1."""
    losses, errors = [], []
    for i in range(len(actions)):
        target = rewards[i]
        if not terminals[i]:
            target = target + discounts[i] * max(next_values[i])
        error = target - values[i][actions[i]]
        losses.append(0.5 * error**2 if abs(error) < 1 else abs(error) - 0.5)
        errors.append(error)
    return float(np.mean(losses)), errors


@pytest.mark.parametrize("seed", range(5))
def test_loss_is_the_equation(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count, kinds = 33, 4
    values, next_values = rng.normal(0, 2, (2, count, kinds))
    actions = rng.integers(0, kinds, count)
    rewards, discounts = rng.normal(0, 1, count), 0.9 ** rng.integers(1, 9, count)
    terminals = rng.random(count) < 0.3
    targets = dqn_targets(
        torch.tensor(rewards), torch.tensor(discounts), torch.tensor(next_values),
        torch.tensor(terminals),
    )
    loss, errors = dqn_loss(torch.tensor(values), torch.tensor(actions), targets)
    wanted, wanted_errors = slow_loss(values, actions, rewards, discounts, next_values, terminals)
    assert float(loss) == pytest.approx(wanted, rel=1e-5)
    np.testing.assert_allclose(errors.numpy(), wanted_errors, rtol=1e-4, atol=1e-5)


def test_a_terminal_state_has_no_value_even_if_the_network_says_infinity() -> None:
    targets = dqn_targets(
        torch.tensor([2.0]), torch.tensor([0.9]), torch.tensor([[float("inf")]]),
        torch.tensor([True]),
    )
    assert targets.tolist() == [2.0]


def test_no_gradient_through_the_target() -> None:
    next_values = torch.ones(1, 2, requires_grad=True)
    values = torch.zeros(1, 2, requires_grad=True)
    targets = dqn_targets(
        torch.zeros(1), torch.ones(1), next_values, torch.zeros(1, dtype=torch.bool)
    )
    loss, _ = dqn_loss(values, torch.tensor([1]), targets)
    loss.backward()
    assert next_values.grad is None
    assert values.grad is not None
    assert values.grad.tolist() == [[0.0, -1.0]]
