"""Losses: pure functions of tensors."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def dqn_targets(
    rewards: Tensor, discounts: Tensor, next_values: Tensor, terminals: Tensor
) -> Tensor:
    """What the value of an executed action should be (Mnih et al., 2015, n-step).

    y = R + gamma**n * max_a Q_target(s', a), without the second term where s' is terminal. A
    truncated episode is not terminal: it bootstraps from its last frame.

    Args:
        rewards: (B,) discounted sums of n decisions.
        discounts: (B,) gamma**n, with the n of each sample.
        next_values: (B, actions) of the target network.
        terminals: (B,) bool.

    Returns:
        (B,) float32, without gradient.
    """
    with torch.no_grad():
        best = next_values.float().max(dim=1).values
        return torch.where(terminals, rewards, rewards + discounts * best)


def dqn_loss(values: Tensor, actions: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The Huber loss of the executed actions' values.

    Args:
        values: (B, actions) of the network that learns.
        actions: (B,) int64.
        targets: (B,) from `dqn_targets`.

    Returns:
        The mean loss, and the temporal-difference errors (B,), detached.
    """
    chosen = values.float().gather(1, actions.unsqueeze(1)).squeeze(1)
    loss = functional.smooth_l1_loss(chosen, targets)
    return loss, (targets - chosen).detach()
