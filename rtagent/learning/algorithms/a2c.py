"""A2C (Mnih et al., Asynchronous Methods for Deep Reinforcement Learning, arXiv 1602.01783).

The synchronous variant: one update for each rollout, from all its decisions at once. With V-trace
it is the learner of IMPALA (arXiv 1802.01561, section 4.2).
"""

from __future__ import annotations

import numpy as np
from torch import Tensor

from rtagent.learning.algorithms.policy_gradient import PolicyGradient
from rtagent.learning.replay.batch import Batch
from rtagent.learning.replay.look_up import Ints


class A2C(PolicyGradient):
    """Gradients of A2C, see `PolicyGradient`."""

    def rollout_length(self, batch_size: int) -> int:
        # One update takes the whole rollout, and memory may have reduced the batch size.
        return batch_size

    def updates_of(self, count: int, batch_size: int, rng: np.random.Generator) -> list[Ints]:
        return [np.arange(count)]

    def _policy_loss(self, log_probabilities: Tensor, batch: Batch) -> Tensor:
        return advantage_loss(log_probabilities, batch.advantages)


def advantage_loss(log_probabilities: Tensor, advantages: Tensor) -> Tensor:
    """-mean(log pi(a|s) A), whose gradient is the policy gradient; A is (B,), without gradient."""
    return -(log_probabilities * advantages).mean()
