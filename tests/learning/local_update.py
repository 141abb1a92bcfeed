"""Learning alone in one process, without shared memory: torch's own Adam, to compare with."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rtagent.config import LearningConfig
from rtagent.learning.algorithms.registry import algorithm_for
from rtagent.learning.replay.batch import Batch


@dataclass(frozen=True)
class UpdateResult:
    """What came out of one update.

    Attributes:
        loss: loss of the batch.
        gradient_norm: norm of the gradient before clipping.
        applied: False if loss or gradient was not finite; the weights are then as before.
        errors: (B,) the errors that `Algorithm.compute_gradient` returned.
    """

    loss: float
    gradient_norm: float
    applied: bool
    errors: Tensor


class LocalUpdate:
    """Learning alone in one process: Adam (Kingma and Ba, 2015) and the target network.

    Args:
        network: network for `algorithm_for`; it is trained in place.
        learning: algorithm, step size, clipping, updates of the target network.

    Attributes:
        algorithm: computes the gradients.
        network: the network that learns.
        updates: steps applied so far.
    """

    def __init__(self, network: nn.Module, learning: LearningConfig) -> None:
        self.algorithm = algorithm_for(network, learning)
        self.network = self.algorithm.network
        self.updates = 0
        self._learning = learning
        self._parts = [list(part.parameters()) for part in self.algorithm.parts]
        self._optimizers = [
            torch.optim.Adam(part, lr=learning.learning_rate, fused=True) for part in self._parts
        ]

    def step(self, batch: Batch) -> UpdateResult:
        """Compute, check and apply a gradient; then update the target network, if that is due."""
        acting = (self.updates + 1) % self.algorithm.delay == 0
        computed, errors = self.algorithm.compute_gradient(batch, acting=acting)
        loss = float(computed)
        limit = self._learning.gradient_clip or float("inf")
        norms = [float(nn.utils.clip_grad_norm_(part, limit)) for part in self._parts]
        norm = math.hypot(*norms)
        finite = math.isfinite(loss) and math.isfinite(norm)
        if finite:
            # Parameters without a gradient are left alone.
            for optimizer in self._optimizers:
                optimizer.step()
            self.updates += 1
            self._update_target()
        return UpdateResult(loss, norm, finite, errors)

    def _update_target(self) -> None:
        tau, online = self.algorithm.target_tau, self.network.state_dict()
        period = self._learning.target_period if tau is None else self.algorithm.delay
        if self.updates % period:
            return
        if tau is None:
            self.algorithm.target.load_state_dict(online)
            return
        for name, value in self.algorithm.target.state_dict().items():
            if value.is_floating_point():
                value.lerp_(online[name], tau)
