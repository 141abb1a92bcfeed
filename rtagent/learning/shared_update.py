"""One learner's share in the common update: read weights, compute a gradient, apply it in turn.

All learners work on one set of weights, one Adam and one target network, in shared memory
(`memory/learner_state.py`). A gradient is computed on a private copy of the weights; how many
updates others have applied since that copy was made is its staleness, which is counted, not
assumed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rtagent.config import LearningConfig
from rtagent.learning.adam import FlatAdam, clip_
from rtagent.learning.algorithms import ValueLearning
from rtagent.learning.flat import FlatNetwork, Floats
from rtagent.learning.replay import Batch
from rtagent.memory.learner_state import LearnerState, Progress
from rtagent.memory.weights import WeightBuffers, WeightsInfo

STALEST_IN_ROUNDS = 2
"""A gradient that missed more updates than this many rounds of all learners is dropped."""


@dataclass(frozen=True)
class Gradient:
    """A gradient that waits for its turn; its values lie in the learner's flat array.

    Attributes:
        loss: of the batch.
        norm: before clipping.
        errors: (B,) absolute errors, for the priorities.
        updates: applied to the weights that it was computed on.
        samples: transitions behind it.
    """

    loss: float
    norm: float
    errors: Tensor
    updates: int
    samples: int

    @property
    def finite(self) -> bool:
        """Whether it can be applied."""
        return bool(np.isfinite(self.loss) and np.isfinite(self.norm))


class SharedUpdate:
    """One learner's view of the shared weights.

    Args:
        algorithm: computes gradients on its own network, which is overwritten here.
        state: shared by all learners.
        weights: where inference finds what is published.
        learning: step size, clipping, target network, how often to publish.
    """

    def __init__(
        self,
        algorithm: ValueLearning,
        state: LearnerState,
        weights: WeightBuffers,
        learning: LearningConfig,
    ) -> None:
        self.algorithm = algorithm
        self.state = state
        self._weights = weights
        self._learning = learning
        self._network = FlatNetwork(algorithm.network)
        self._target = FlatNetwork(algorithm.target)
        self._copy = np.empty(self._network.size, np.float32)
        self._slope = torch.zeros(self._network.size)
        self._target_number = -1
        self._adams = [FlatAdam(each, learning.learning_rate) for each in state.copies]

    # ---- at any time

    def refresh(self) -> Progress | None:
        """Take over the newest weights and target network; how far they are, None if lapped."""
        progress = self.state.read_weights(self._copy)
        if progress is None:
            return None
        self._network.load(torch.from_numpy(self._copy))
        if self.state.target_number != self._target_number:
            number = self.state.read_target(self._copy)
            if number is None:
                return None
            self._target.load(torch.from_numpy(self._copy))
            self._target_number = number
        return progress

    def compute(self, batch: Batch, updates: int) -> Gradient:
        """The gradient of a batch on the weights taken over last.

        Args:
            batch: transitions.
            updates: what `refresh` said.
        """
        loss, errors = self.algorithm.compute_gradient(batch)
        self._network.gradient_into(self._slope)
        norm = clip_(self._slope, self._learning.gradient_clip)
        return Gradient(loss, norm, errors, updates, len(batch.actions))

    def forget_gradient(self) -> None:
        """Give back the memory of the network's own gradient."""
        self.algorithm.network.zero_grad(set_to_none=True)

    # ---- under the apply lock

    def staleness(self, gradient: Gradient) -> int:
        """Updates that were applied since the gradient's weights were read."""
        return self.state.progress.updates - gradient.updates

    def apply(self, gradient: Gradient) -> Progress:
        """Make the next weights out of the current ones; the target and inference follow if due."""
        state, before = self.state, self.state.progress
        after = Progress(
            before.updates + 1, before.steps + 1, before.samples + gradient.samples
        )
        old, index = state.current, state.begin()
        new = state.copies[index]
        new.copy_from(old)
        self._adams[index].step(self._slope, before.steps)
        self._network.statistics_into(torch.from_numpy(new.weights))
        state.commit(after)
        self._follow(after.updates)
        if after.updates % self._learning.publish_every == 0:
            self.publish()
        return after

    def publish(self) -> None:
        """Publish the current weights for inference."""
        info = self._weights.info()
        version = 1 if info is None else info.version + 1
        self._weights.publish(
            self.state.current.weights, WeightsInfo(version, self.state.progress.updates)
        )

    def _follow(self, updates: int) -> None:
        """Bring the target network up to date if it is due, by period or softly.

        What is due follows from what the target has seen, so that a learner killed between the
        update and this leaves nothing out.
        """
        period, tau, state = self._learning.target_period, self._learning.target_tau, self.state
        if tau is None:
            if updates // period > state.target_updates // period:
                np.copyto(state.begin_target(), state.current.weights)
                state.commit_target(updates)
        elif updates > state.target_updates:
            soft_update(state.target, state.current.weights, tau, state.begin_target())
            state.commit_target(updates)


def soft_update(target: Floats, online: Floats, tau: float, out: Floats) -> None:
    """out = target + tau (online - target), each (n,) float32 (Lillicrap et al., 2016)."""
    torch.lerp(torch.from_numpy(target), torch.from_numpy(online), tau, out=torch.from_numpy(out))
