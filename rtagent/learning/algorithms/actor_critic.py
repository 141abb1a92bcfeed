"""What TD3, DDPG and SAC have in common: an actor that climbs its critics, and how those learn.

An algorithm of this family says which actions its targets are for, and what its actor maximises.
The target network is a slow copy of all, moved softly.
"""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor, nn

from rtagent.config import LearningConfig
from rtagent.learning.algorithms.algorithm import Algorithm
from rtagent.learning.precision import computing
from rtagent.learning.replay.batch import Batch
from rtagent.policy.actor_critic import ActorCritic

TARGET_TAU = 0.005


class ActorCriticLearning(Algorithm):
    """Gradients of an actor and its critics; the errors are those of the critics.

    Actor and critics get theirs at the same weights, so that one array is one update; the papers'
    code takes the actor's after the critics' step.

    Args:
        network: float32.
        learning: of the run.
        generator: of what is drawn. If None, torch's own.
    """

    network: ActorCritic
    target: ActorCritic

    def __init__(
        self, network: ActorCritic, learning: LearningConfig,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(network, learning)
        self.parts = [network.actor, network.critics]
        self.target_tau = learning.target_tau or TARGET_TAU
        self._learning, self._generator = learning, generator

    def compute_gradient(self, batch: Batch, *, acting: bool = True) -> tuple[float, Tensor]:
        self.network.zero_grad(set_to_none=True)
        # All passes with gradient come first, see `ValueLearning.compute_gradient`.
        with computing(self.precision, self.device):
            features = self.network.critics.features(*batch.inputs)
            values = self.network.critics.values(features, batch.actions)
            if acting:
                self._improve_actor(batch, features.detach())
            with torch.no_grad():
                targets = self._targets(batch)
        loss, errors = critics_loss(values, targets, batch.weights)
        (self.loss_scale * loss).backward()  # type: ignore[no-untyped-call]
        return float(loss.detach()), errors

    @abstractmethod
    def _targets(self, batch: Batch) -> Tensor:
        """What the critics should say of the batch: (B,) float32; called without gradient."""

    def _improve_actor(self, batch: Batch, features: Tensor) -> None:
        """Put the deterministic policy gradient into the actor, and nothing into the critic."""
        actor = self.network.actor
        values = self.network.critics.values(features, actor(*batch.inputs), 1)[0]
        put_gradient(self.loss_scale * actor_loss(values, batch.weights), actor)

    def _normal(self, like: Tensor, deviation: float = 1.0) -> Tensor:
        """Normal noise in the shape of a tensor."""
        noise = torch.empty_like(like, requires_grad=False)
        return noise.normal_(0.0, deviation, generator=self._generator)


def put_gradient(loss: Tensor, module: nn.Module) -> None:
    """Put the gradient of a loss into one module, whatever else it depends on."""
    learned = [each for each in module.parameters() if each.requires_grad]
    if not learned:
        return
    slopes = torch.autograd.grad(loss, learned, allow_unused=True)
    for parameter, slope in zip(learned, slopes, strict=True):
        parameter.grad = slope


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
