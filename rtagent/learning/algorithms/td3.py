"""TD3 (Fujimoto et al., 2018): gradients of an actor and its two critics.

Three things reduce the overestimation of values: the target is the smaller of two critics' values,
target actions are smoothed by noise, and actor and target network are updated only once in several
updates of the critics.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rtagent.config import LearningConfig
from rtagent.learning.algorithms.actor_critic import ActorCriticLearning, Noise
from rtagent.learning.algorithms.algorithm import bootstrapped
from rtagent.learning.replay.batch import Batch
from rtagent.policy.actor_critic import ActorCritic


class TD3(ActorCriticLearning):
    """Gradients of TD3, see `ActorCriticLearning`."""

    def __init__(
        self, network: ActorCritic, learning: LearningConfig,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(network, learning, generator)
        self.delay = learning.policy_delay

    def _draw_noise(self, batch: Batch) -> Noise:
        return (self._normal(batch, self._learning.target_noise),)

    def _targets(self, batch: Batch, noise: Noise) -> Tensor:
        bounds, limit = self.network.bounds.to(self.device), self._learning.target_noise_clip
        actions = self.target.actor(*batch.next_inputs)
        actions = smoothed_actions(actions, noise[0], limit, bounds.low, bounds.high)
        next_values = self.target.values(actions, *batch.next_inputs)
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
    """Target values of the executed actions (Fujimoto et al., 2018, Eq. 10, n-step).

    y = R + gamma**n * min_i Q_target_i(s', a~), without the second term where s' is terminal.

    Args:
        rewards, discounts, terminals: (B,).
        next_values: (critics, B) of the target critics for the smoothed target actions.

    Returns:
        (B,) float32, without gradient.
    """
    return bootstrapped(rewards, discounts, next_values.float().amin(dim=0), terminals)
