"""TD3 (Fujimoto et al., 2018): gradients of an actor and its two critics.

Three things keep the critics from believing their own errors: the smaller of two target values
counts, target actions are smoothed by noise, and the actor follows only every few updates of the
critics. The targets follow with it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rtagent.config import LearningConfig
from rtagent.learning.algorithms.algorithm import Algorithm
from rtagent.learning.replay.batch import Batch
from rtagent.policy.actor_critic import ActorCritic

TARGET_TAU = 0.005


class TD3(Algorithm):
    """Gradients of TD3; the errors are those of the critics.

    Actor and critics get theirs at the same weights, so that one array is one update; the paper's
    code takes the actor's after the critics' step.

    Args:
        network: float32.
        learning: noise, delay, precision.
        generator: of the noise of the target actions. If None, torch's own.
    """

    network: ActorCritic
    target: ActorCritic

    def __init__(
        self, network: ActorCritic, learning: LearningConfig,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(network, learning)
        self.acting = network.actor
        self.delay = learning.policy_delay
        self.target_tau = learning.target_tau or TARGET_TAU
        self._learning, self._generator = learning, generator

    def compute_gradient(self, batch: Batch, *, acting: bool = True) -> tuple[float, Tensor]:
        self.network.zero_grad(set_to_none=True)
        # All passes with gradient come first, see `ValueLearning.compute_gradient`.
        with torch.autocast("cpu", torch.bfloat16, enabled=self._bfloat16):
            features = self.network.critics.features(batch.observations)
            values = self.network.critics.values(features, batch.actions)
            if acting:
                self._follow_critic(batch, features.detach())
            targets = self._targets(batch)
        loss, errors = critics_loss(values, targets, batch.weights)
        loss.backward()  # type: ignore[no-untyped-call]
        return float(loss.detach()), errors

    def _follow_critic(self, batch: Batch, features: Tensor) -> None:
        """Put the policy gradient into the actor, and nothing into the critic it climbs."""
        actor, critics = self.network.actor, self.network.critics
        values = critics.values(features, actor(batch.observations), 1)[0]
        learned = [each for each in actor.parameters() if each.requires_grad]
        if not learned:
            return
        loss = actor_loss(values, batch.weights)
        slopes = torch.autograd.grad(loss, learned, allow_unused=True)
        for parameter, slope in zip(learned, slopes, strict=True):
            parameter.grad = slope

    def _targets(self, batch: Batch) -> Tensor:
        bounds, learning = self.network.bounds, self._learning
        with torch.no_grad():
            actions = self.target.actor(batch.next_observations).float()
            noise = torch.empty_like(actions)
            noise.normal_(0.0, learning.target_noise, generator=self._generator)
            limit = learning.target_noise_clip
            actions = smoothed_actions(actions, noise, limit, bounds.low, bounds.high)
            next_values = self.target.values(batch.next_observations, actions)
        return td3_targets(batch.rewards, batch.discounts, next_values, batch.terminals)


def smoothed_actions(
    actions: Tensor, noise: Tensor, limit: float, low: Tensor, high: Tensor
) -> Tensor:
    """Target actions with noise, so that Q is averaged around them (TD3; Fujimoto et al., 2018).

    a~ = clip(pi_target(s') + clip(eps, -c, c) * (high - low) / 2, low, high), their Eq. 15 with the
    noise eps (B, n) in units of half the range; c is the limit, low and high are (n,).

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
        rewards, discounts, terminals: (B,).
        next_values: (critics, B) of the target critics for the smoothed target actions.

    Returns:
        (B,) float32, without gradient.
    """
    with torch.no_grad():
        least = next_values.float().amin(dim=0)
        return torch.where(terminals, rewards, rewards + discounts * least)


def critics_loss(values: Tensor, targets: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """The weighted mean squared errors of the values (critics, B), summed over the critics.

    Returns:
        The loss, and the absolute temporal-difference errors (B,), detached, averaged over the
        critics.
    """
    errors = targets - values.float()
    loss = (weights * errors.square()).mean(dim=1).sum()
    return loss, errors.detach().abs().mean(dim=0)


def actor_loss(values: Tensor, weights: Tensor) -> Tensor:
    """Its gradient is the deterministic policy gradient (Silver et al., 2014): -mean Q_1(s, pi(s)).

    Values (B,) are those of the first critic for the actor's own actions.
    """
    return -(weights * values.float()).mean()
