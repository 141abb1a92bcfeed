"""SAC (Haarnoja et al., Soft Actor-Critic, arXiv 1801.01290): a policy that stays random.

The actor gives a normal distribution for each component of an action, squashed into its bounds by
tanh, and its entropy is part of the reward. The weight of the entropy, the temperature, is learned,
so that the policy keeps a target entropy (Soft Actor-Critic Algorithms and Applications, arXiv
1812.05905).

Densities are those of actions scaled to [-1, 1], so that they do not depend on the environment's
units. They leave out components whose bounds are equal: these would become as random as they can,
which changes nothing in the world, and leave the others far less than the target entropy. Entropy
is rewarded once for each transition, at its successor: with n-step returns the decisions in between
get no reward for theirs.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from rtagent.config import LearningConfig
from rtagent.learning.algorithms.actor_critic import ActorCriticLearning, Noise
from rtagent.learning.algorithms.algorithm import bootstrapped, without_gradient
from rtagent.learning.replay.batch import Batch
from rtagent.policy.actor_critic import ActorCritic
from rtagent.policy.heads import LOG_STD_MAX, LOG_STD_MIN
from rtagent.policy.inputs import Inputs


class SAC(ActorCriticLearning):
    """Gradients of SAC, see `ActorCriticLearning`, and of its temperature."""

    def __init__(
        self, network: ActorCritic, learning: LearningConfig,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(network, learning, generator)
        assert network.temperature is not None
        # The actor of the target pass, which may run at the same time as the policy pass.
        self._fixed["actor"] = without_gradient(network.actor)
        self._temperature = network.temperature
        self.parts = [*self.parts, network.temperature]
        self._moving = network.bounds.half.nonzero()[:, 0].to(self.device)
        target = learning.target_entropy
        self._target_entropy = -float(len(self._moving)) if target is None else target

    def _draw_noise(self, batch: Batch) -> Noise:
        for_actor, for_targets = self._normal(batch), self._normal(batch)
        return for_targets, for_actor

    def _actor_loss(self, batch: Batch, features: Tensor, noise: Noise) -> Tensor:
        scaled, densities = self._sample(self.network.actor, batch.inputs, noise[1])
        actions = self.network.bounds.unscaled(scaled)
        values = self.fixed_critics.values(features, actions).amin(dim=0)
        loss = sac_actor_loss(values, densities, self._alpha(), batch.weights)
        if self._learning.temperature is None:
            # In one sum, for each term has gradients for its own parameters alone.
            loss = loss + temperature_loss(
                self._temperature.logarithm, densities, self._target_entropy, batch.weights
            )
        return loss

    def _targets(self, batch: Batch, noise: Noise) -> Tensor:
        scaled, densities = self._sample(self._fixed["actor"], batch.next_inputs, noise[0])
        actions = self.network.bounds.unscaled(scaled)
        next_values = self.target.values(actions, *batch.next_inputs)
        return sac_targets(
            batch.rewards, batch.discounts, next_values, densities, self._alpha(), batch.terminals
        )

    def _alpha(self) -> Tensor:
        """The temperature in force, without gradient."""
        fixed, logarithm = self._learning.temperature, self._temperature.logarithm.detach()
        return logarithm.exp() if fixed is None else torch.full_like(logarithm, fixed)

    def _sample(
        self, actor: nn.Module, inputs: Inputs, noise: Tensor
    ) -> tuple[Tensor, Tensor]:
        means, deviations = actor(*inputs).float().chunk(2, dim=1)
        scaled, moving = torch.zeros_like(means), self._moving
        drawn, densities = squashed_sample(
            means[:, moving], deviations[:, moving], noise[:, moving]
        )
        return scaled.index_copy(1, moving, drawn), densities


def squashed_sample(means: Tensor, log_stds: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Actions drawn from squashed normal distributions (arXiv 1801.01290, Appendix C).

    a = tanh(u), u = mean + std * noise; log pi(a) = log N(u) - sum_i log(1 - tanh^2(u_i)).

    Args:
        means: (B, n).
        log_stds: (B, n), clipped to the limits of `heads`.
        noise: (B, n) standard normal.

    Returns:
        Actions (B, n) in [-1, 1], and the logarithms of their densities (B,).
    """
    log_stds = log_stds.clamp(LOG_STD_MIN, LOG_STD_MAX)
    before = means + log_stds.exp() * noise
    normal = -0.5 * noise.square() - log_stds - 0.5 * math.log(2.0 * math.pi)
    # Computed directly, log(1 - tanh^2) would be log(0) where tanh is 1 in float32.
    squashing = 2.0 * (math.log(2.0) - before - functional.softplus(-2.0 * before))
    return before.tanh(), (normal - squashing).sum(dim=1)


def sac_targets(
    rewards: Tensor, discounts: Tensor, next_values: Tensor, next_densities: Tensor,
    temperature: Tensor, terminals: Tensor,
) -> Tensor:
    """Target values of the executed actions (arXiv 1812.05905, Eqs. 3 and 5, n-step).

    y = R + gamma**n * (min_i Q_target_i(s', a') - alpha log pi(a'|s')), a' drawn by the actor that
    learns, without the second term where s' is terminal.

    Args:
        rewards, discounts, terminals: (B,).
        next_values: (critics, B) of the target critics for a'.
        next_densities: (B,) log pi(a'|s').
        temperature: alpha.

    Returns:
        (B,) float32, without gradient.
    """
    soft = next_values.float().amin(dim=0) - temperature * next_densities
    return bootstrapped(rewards, discounts, soft, terminals)


def sac_actor_loss(
    values: Tensor, densities: Tensor, temperature: Tensor, weights: Tensor
) -> Tensor:
    """mean(alpha log pi(a|s) - min_i Q_i(s, a)) (arXiv 1812.05905, Eq. 9), weighted.

    Args:
        values: (B,), of the smaller critic for the actor's own actions.
        densities: (B,) log pi(a|s).
        temperature: alpha, without gradient.
        weights: (B,) importance weights.
    """
    return (weights * (temperature * densities - values.float())).mean()


def temperature_loss(
    logarithm: Tensor, densities: Tensor, entropy: float, weights: Tensor
) -> Tensor:
    """mean(-log(alpha) (log pi(a|s) + H)), H the target entropy (after arXiv 1812.05905, Eq. 18).

    The equation has alpha for log(alpha). The authors' code learns the logarithm, too: alpha stays
    positive, and moves no more slowly where it is small.

    Args:
        logarithm: log(alpha), (1,).
        densities: (B,) log pi(a|s); they get no gradient.
        entropy: H.
        weights: (B,) importance weights.
    """
    return -(logarithm * (weights * (densities.detach() + entropy)).mean()).sum()
