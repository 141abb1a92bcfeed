"""PPO (Schulman et al., Proximal Policy Optimization Algorithms, arXiv 1707.06347).

Each rollout is learned from several times. Clipping limits how far the policy may go from the
learner's policy before the first of these updates; V-trace corrects for the distance between that
policy and the older policy that acted. So the age of the acting weights takes nothing from the
clipping range.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from rtagent.learning.algorithms.policy_gradient import PolicyGradient
from rtagent.learning.replay.batch import Batch
from rtagent.learning.replay.look_up import Ints
from rtagent.learning.replay.rollouts import Rollout


class PPO(PolicyGradient):
    """Gradients of PPO, see `PolicyGradient`."""

    def prepare(self, rollout: Rollout) -> Batch:
        batch = super().prepare(rollout)
        # In float32, what rounding leaves of the mean of equal advantages would be divided by 1e-8.
        advantages = batch.advantages.double()
        advantages -= advantages.mean()
        spread = advantages.std(correction=0)
        batch.advantages.copy_(advantages / (spread + 1e-8))
        return batch

    def updates_of(self, count: int, batch_size: int, rng: np.random.Generator) -> list[Ints]:
        parts = -(-count // batch_size)
        epochs = range(self._learning.epochs)
        return [part for _ in epochs for part in np.array_split(rng.permutation(count), parts)]

    def _policy_loss(self, log_probabilities: Tensor, batch: Batch) -> Tensor:
        return clipped_loss(
            log_probabilities, batch.log_probabilities, batch.advantages, self._learning.clip
        )


def clipped_loss(new: Tensor, old: Tensor, advantages: Tensor, clip: float) -> Tensor:
    """-mean(min(r A, clip(r, 1 - epsilon, 1 + epsilon) A)), r = pi/pi_old (their Eq. 7).

    Args:
        new: (B,) log pi(a|s).
        old: (B,) log pi_old(a|s), without gradient.
        advantages: (B,) A.
        clip: epsilon.
    """
    ratios = (new - old).exp()
    limited = ratios.clamp(1.0 - clip, 1.0 + clip)
    return -torch.minimum(ratios * advantages, limited * advantages).mean()
