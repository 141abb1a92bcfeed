"""C51: a distribution over returns for each action; targets and loss."""

from __future__ import annotations

import torch
from torch import Tensor

from rtagent.policy.heads import expected_values, of_actions


def c51_targets(
    rewards: Tensor, discounts: Tensor, next_logits: Tensor, terminals: Tensor, support: Tensor
) -> Tensor:
    """Target distributions of the executed actions (Bellemare et al., 2017, Algorithm 1).

    The successor's best action is that of the largest mean. Each atom z of its distribution is
    moved to R + gamma**n * z, clipped to the support. There its mass is shared between the two
    neighbours on the support: the nearer one gets more. A terminal successor moves all mass to R.

    Args:
        rewards, discounts, terminals: (B,).
        next_logits: (B, actions, atoms) of the target network.
        support: (atoms,) float32, evenly spaced.

    Returns:
        (B, atoms) float32, without gradient; not a number where the reward is not finite.
    """
    with torch.no_grad():
        best = expected_values(next_logits, support).argmax(dim=1)
        masses = of_actions(next_logits.float(), best).softmax(dim=1)
        # A terminal successor's frame may be anything, even not a number.
        masses = masses.where(~terminals[:, None], torch.full_like(masses, 1.0 / len(support)))
        discounts = discounts.where(~terminals, torch.zeros_like(discounts))
        moved = rewards[:, None] + discounts[:, None] * support
        # Clipping would hide an infinite reward, and no update may use one.
        moved = moved.clamp(support[0], support[-1]).where(moved.isfinite(), torch.nan)
        return _share(moved, masses, support)


def c51_loss(
    logits: Tensor, actions: Tensor, targets: Tensor, weights: Tensor
) -> tuple[Tensor, Tensor]:
    """The cross-entropy of the executed actions' distributions (Bellemare et al., 2017, Eq. 7).

    Args:
        logits: (B, actions, atoms) of the network that learns.
        targets: (B, atoms) without gradient, of the actions (B,) int64.
        weights: (B,) importance weights.

    Returns:
        The mean of the weighted losses, and the Kullback-Leibler divergences (B,), detached: the
        part of the cross-entropy that learning can remove, and so the better priority.
    """
    log_masses = of_actions(logits.float(), actions).log_softmax(dim=1)
    losses = -(targets * log_masses).sum(dim=1)
    entropies = -torch.xlogy(targets, targets).sum(dim=1)
    return (weights * losses).mean(), (losses.detach() - entropies).clamp(min=0.0)


def _share(positions: Tensor, masses: Tensor, support: Tensor) -> Tensor:
    """Masses (B, atoms) at positions on the support, shared between the neighbouring atoms."""
    last = len(support) - 1
    steps = (positions - support[0]) * (last / (support[-1] - support[0]))
    # With the lower neighbour below the last atom, a position on an atom needs no case of its own.
    lower = steps.floor().long().clamp(0, last - 1)
    # Rounding may leave a step just outside, and a negative mass has no logarithm.
    upper_part = (steps - lower).clamp(0.0, 1.0)
    shared = torch.zeros_like(masses)
    shared.scatter_add_(1, lower, masses * (1.0 - upper_part))
    return shared.scatter_add_(1, lower + 1, masses * upper_part)
