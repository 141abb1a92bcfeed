"""DDPG (Lillicrap et al., Continuous control with deep reinforcement learning, arXiv 1509.02971).

One actor, one critic, and a target network that follows both softly. TD3 extends DDPG against the
overestimation of values; DDPG is there for comparison, and for runs in which every update counts.
"""

from __future__ import annotations

from torch import Tensor

from rtagent.learning.algorithms.actor_critic import ActorCriticLearning, Noise
from rtagent.learning.algorithms.algorithm import bootstrapped
from rtagent.learning.replay.batch import Batch


class DDPG(ActorCriticLearning):
    """Gradients of DDPG, see `ActorCriticLearning`; the network has one critic.

    Its targets are y = R + gamma**n * Q'(s', mu'(s')) (Algorithm 1, n-step).
    """

    def _targets(self, batch: Batch, noise: Noise) -> Tensor:
        actions = self.target.actor(*batch.next_inputs).float()
        next_values = self.target.values(actions, *batch.next_inputs)[0]
        return bootstrapped(batch.rewards, batch.discounts, next_values, batch.terminals)
