"""DDPG (Lillicrap et al., Continuous control with deep reinforcement learning, arXiv 1509.02971).

One actor, one critic, and targets that follow both softly. TD3 is what was made of it to keep the
critic from believing its own errors; DDPG is there for comparison, and where every update counts.
"""

from __future__ import annotations

from torch import Tensor

from rtagent.learning.algorithms.actor_critic import ActorCriticLearning, Drawn
from rtagent.learning.algorithms.algorithm import bootstrapped
from rtagent.learning.replay.batch import Batch


class DDPG(ActorCriticLearning):
    """Gradients of DDPG, see `ActorCriticLearning`; the network has one critic."""

    def _targets(self, batch: Batch, drawn: Drawn) -> Tensor:
        actions = self.target.actor(*batch.next_inputs).float()
        observations, *pending = batch.next_inputs
        next_values = self.target.values(observations, actions, *pending)[0]
        return ddpg_targets(batch.rewards, batch.discounts, next_values, batch.terminals)


def ddpg_targets(
    rewards: Tensor, discounts: Tensor, next_values: Tensor, terminals: Tensor
) -> Tensor:
    """What the critic should say of an executed action (Lillicrap et al., Algorithm 1, n-step).

    y = R + gamma**n * Q'(s', mu'(s')), without the second term where s' is terminal.

    Args:
        rewards, discounts, terminals: (B,).
        next_values: (B,) of the target critic for the target actor's actions.

    Returns:
        (B,) float32, without gradient.
    """
    return bootstrapped(rewards, discounts, next_values, terminals)
