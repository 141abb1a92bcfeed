"""Losses: pure functions of tensors.

B is the number of transitions. What a transition's action is worth is `rewards`, the discounted sum
of what came in its n ticks (or decisions), plus `discounts` = gamma**n times the value of its
successor; a terminal successor has none. A truncated episode is not terminal: it bootstraps.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from rtagent.policy.heads import expected_values


def dqn_targets(
    rewards: Tensor, discounts: Tensor, next_values: Tensor, terminals: Tensor
) -> Tensor:
    """What the value of an executed action should be (Mnih et al., 2015, n-step).

    y = R + gamma**n * max_a Q_target(s', a), without the second term where s' is terminal.

    Args:
        rewards: (B,).
        discounts: (B,) gamma**n, with the n of each sample.
        next_values: (B, actions) of the target network.
        terminals: (B,) bool.

    Returns:
        (B,) float32, without gradient.
    """
    with torch.no_grad():
        best = next_values.float().max(dim=1).values
        return torch.where(terminals, rewards, rewards + discounts * best)


def double_dqn_targets(
    rewards: Tensor, discounts: Tensor, chosen_by: Tensor, next_values: Tensor, terminals: Tensor
) -> Tensor:
    """The same with the action's choice apart from its value (van Hasselt et al., 2016).

    y = R + gamma**n * Q_target(s', argmax_a Q(s', a)), their Eq. 4 with the target network as the
    second set of weights.

    Args:
        rewards: (B,).
        discounts: (B,).
        chosen_by: (B, actions) values of the successors by the network that learns.
        next_values: (B, actions) of the target network.
        terminals: (B,) bool.

    Returns:
        (B,) float32, without gradient.
    """
    with torch.no_grad():
        best = _of_actions(next_values.float(), chosen_by.argmax(dim=1))
        return torch.where(terminals, rewards, rewards + discounts * best)


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
    chosen = _of_actions(values.float(), actions)
    losses = functional.smooth_l1_loss(chosen, targets, reduction="none")
    return (weights * losses).mean(), (targets - chosen).detach().abs()


def c51_targets(
    rewards: Tensor, discounts: Tensor, next_logits: Tensor, terminals: Tensor, support: Tensor
) -> Tensor:
    """What the distribution of an executed action should be (Bellemare et al., 2017, Algorithm 1).

    The distribution of the successor's best action, by its mean, is moved to R + gamma**n * z,
    clipped to the support, and each atom's mass is shared between its two neighbours on the
    support, the more the nearer. A terminal successor moves all mass to R.

    Args:
        rewards: (B,).
        discounts: (B,).
        next_logits: (B, actions, atoms) of the target network.
        terminals: (B,) bool.
        support: (atoms,) float32, evenly spaced.

    Returns:
        (B, atoms) float32, without gradient; not a number where the reward is not finite.
    """
    with torch.no_grad():
        best = expected_values(next_logits, support).argmax(dim=1)
        masses = _of_actions(next_logits.float(), best).softmax(dim=1)
        # A terminal successor's frame may be anything, even not a number.
        masses = masses.where(~terminals[:, None], torch.full_like(masses, 1.0 / len(support)))
        discounts = discounts.where(~terminals, torch.zeros_like(discounts))
        moved = rewards[:, None] + discounts[:, None] * support
        # Clipping would hide an infinite reward, which no update may use.
        moved = moved.clamp(support[0], support[-1]).where(moved.isfinite(), torch.nan)
        return _share(moved, masses, support)


def c51_loss(
    logits: Tensor, actions: Tensor, targets: Tensor, weights: Tensor
) -> tuple[Tensor, Tensor]:
    """The cross-entropy of the executed actions' distributions (Bellemare et al., 2017, Eq. 7).

    Args:
        logits: (B, actions, atoms) of the network that learns.
        actions: (B,) int64.
        targets: (B, atoms) without gradient.
        weights: (B,) importance weights.

    Returns:
        The mean of the weighted losses, and the Kullback-Leibler divergences (B,), detached: the
        part of the cross-entropy that learning can remove, and so the better priority.
    """
    log_masses = _of_actions(logits.float(), actions).log_softmax(dim=1)
    losses = -(targets * log_masses).sum(dim=1)
    entropies = -torch.xlogy(targets, targets).sum(dim=1)
    return (weights * losses).mean(), (losses.detach() - entropies).clamp(min=0.0)


def margin_loss(values: Tensor, actions: Tensor, demonstrated: Tensor, margin: float) -> Tensor:
    """The large margin classification loss of demonstrated actions (Hester et al., 2018).

    J_E = max_a [Q(s, a) + l(a_E, a)] - Q(s, a_E), with l = margin where a is not a_E, and 0 where
    it is. It is 0 once every other action's value is that much smaller.

    Args:
        values: (B, actions) of the network that learns.
        actions: (B,) int64; a_E where demonstrated.
        demonstrated: (B,) bool, or (1,) for all; J_E of the others counts as 0.
        margin: not negative.

    Returns:
        The mean over all B: its share is that of the demonstrations.
    """
    values = values.float()
    margins = torch.full_like(values, margin).scatter_(1, actions[:, None], 0.0)
    gaps = (values + margins).max(dim=1).values - _of_actions(values, actions)
    return (demonstrated * gaps).mean()


def smoothed_actions(
    actions: Tensor, noise: Tensor, limit: float, low: Tensor, high: Tensor
) -> Tensor:
    """Target actions with noise, so that Q is averaged around them (TD3; Fujimoto et al., 2018).

    a~ = clip(pi_target(s') + clip(eps, -c, c) * (high - low) / 2, low, high), their Eq. 15 with the
    noise in units of half the range.

    Args:
        actions: (B, n) of the target actor.
        noise: (B, n) eps, in units of half the range.
        limit: c.
        low: (n,) smallest actions.
        high: (n,) largest actions.

    Returns:
        (B, n) float32, without gradient.
    """
    with torch.no_grad():
        moved = actions.float() + noise.clamp(-limit, limit) * (high - low) / 2.0
        return moved.clamp(low, high)


def td3_targets(
    rewards: Tensor, discounts: Tensor, next_values: Tensor, terminals: Tensor
) -> Tensor:
    """What the critics should say of an executed action (Fujimoto et al., 2018, Eq. 10, n-step).

    y = R + gamma**n * min_i Q_target_i(s', a~), without the second term where s' is terminal.

    Args:
        rewards: (B,).
        discounts: (B,).
        next_values: (critics, B) of the target critics for the smoothed target actions.
        terminals: (B,) bool.

    Returns:
        (B,) float32, without gradient.
    """
    with torch.no_grad():
        least = next_values.float().amin(dim=0)
        return torch.where(terminals, rewards, rewards + discounts * least)


def critics_loss(values: Tensor, targets: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """The mean squared errors of the critics, summed over them.

    Args:
        values: (critics, B) for the executed actions.
        targets: (B,) without gradient.
        weights: (B,) importance weights.

    Returns:
        The loss, and the absolute temporal-difference errors (B,), detached, averaged over the
        critics.
    """
    errors = targets - values.float()
    loss = (weights * errors.square()).mean(dim=1).sum()
    return loss, errors.detach().abs().mean(dim=0)


def actor_loss(values: Tensor, weights: Tensor) -> Tensor:
    """Its gradient is the deterministic policy gradient (Silver et al., 2014): -mean Q_1(s, pi(s)).

    Args:
        values: (B,) of the first critic for the actor's own actions.
        weights: (B,) importance weights.
    """
    return -(weights * values.float()).mean()


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


def _of_actions(values: Tensor, actions: Tensor) -> Tensor:
    """(B, ...) of one action each, out of (B, actions, ...)."""
    return values[torch.arange(len(values), device=values.device), actions]
