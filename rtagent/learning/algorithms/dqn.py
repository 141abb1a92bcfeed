"""DQN and Double DQN: targets and loss, pure functions of tensors."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from rtagent.learning.algorithms.algorithm import bootstrapped
from rtagent.policy.heads import of_actions


def dqn_targets(
    rewards: Tensor, discounts: Tensor, next_values: Tensor, terminals: Tensor
) -> Tensor:
    """Target values of the executed actions (Mnih et al., 2015, n-step).

    y = R + gamma**n * max_a Q_target(s', a), without the second term where s' is terminal.

    Args:
        rewards, discounts, terminals: (B,).
        next_values: (B, actions) of the target network.

    Returns:
        (B,) float32, without gradient.
    """
    return bootstrapped(rewards, discounts, next_values.max(dim=1).values, terminals)


def double_dqn_targets(
    rewards: Tensor, discounts: Tensor, chosen_by: Tensor, next_values: Tensor, terminals: Tensor
) -> Tensor:
    """As `dqn_targets`, but the network that learns chooses the action (van Hasselt et al., 2016).

    y = R + gamma**n * Q_target(s', argmax_a Q(s', a)), their Eq. 4 with the target network as the
    second set of weights.

    Args are those of `dqn_targets`, and `chosen_by` (B, actions): values of the successors by the
    network that learns.
    """
    best = of_actions(next_values, chosen_by.argmax(dim=1))
    return bootstrapped(rewards, discounts, best, terminals)


def huber_loss(
    values: Tensor, actions: Tensor, targets: Tensor, weights: Tensor
) -> tuple[Tensor, Tensor]:
    """The Huber loss, with threshold 1, of the executed actions' values.

    Args:
        values: (B, actions) of the network that learns.
        actions: (B,) int64.
        targets: (B,) without gradient.
        weights: (B,) importance weights (Schaul et al., 2016); 1 where sampling is uniform.

    Returns:
        The mean of the weighted losses, and the absolute temporal-difference errors (B,), detached.
    """
    chosen = of_actions(values.float(), actions)
    losses = functional.smooth_l1_loss(chosen, targets, reduction="none")
    return (weights * losses).mean(), (targets - chosen).detach().abs()
