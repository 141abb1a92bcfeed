"""What TD3, DDPG and SAC have in common: an actor that maximises its critics' values.

A subclass defines the targets of the critics, and what its actor maximises. The target network is a
copy of actor and critics, updated softly.

A step has two passes beside that of the critics: the target pass, without gradient, and the policy
pass, through the actor and the critics and back. The policy pass has an autograd graph of its own,
in which the critics' weights require no gradient. So each of the two may run in its own thread.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import partial

import torch
from torch import Tensor, nn

from rtagent.config import LearningConfig
from rtagent.learning.algorithms.algorithm import Placeable, without_gradient
from rtagent.learning.precision import computing
from rtagent.learning.replay.batch import Batch
from rtagent.policy.actor_critic import ActorCritic, Critics

TARGET_TAU = 0.005
Noise = tuple[Tensor, ...]
"""Random numbers of a step: those of the targets, then those of the actor."""


class ActorCriticLearning(Placeable):
    """Gradients of an actor and its critics; the errors are those of the critics.

    Both gradients are computed at the same weights, so that one array is one update; the papers'
    code computes the actor's gradient after the critics' step.

    Args:
        network: float32.
        learning: settings of the run.
        generator: source of the noise. If None, torch's default generator.
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
        self._learning, self.generator = learning, generator
        # In a dictionary, so that its layers have the same names as in the network.
        self._fixed = nn.ModuleDict({"critics": without_gradient(network.critics)})

    @property
    def networks(self) -> tuple[nn.Module, ...]:
        return *super().networks, self._fixed

    @property
    def fixed_critics(self) -> Critics:
        """The critics of the policy pass: the same weights, which get no gradient there."""
        critics = self._fixed["critics"]
        assert isinstance(critics, Critics)
        return critics

    def _compute(self, batch: Batch, acting: bool) -> tuple[Tensor, Tensor]:
        # Before the passes, which would draw in any order if each has a thread.
        noise = self._draw_noise(batch)
        targets = self.runner.start("target", partial(self._target_pass, batch, noise))
        with computing(self.precision, self.device):
            features = self.network.critics.features(*batch.inputs)
        improve = partial(self._policy_pass, batch, features.detach(), noise)
        improved = self.runner.start("policy", improve) if acting else None
        values = self.network.critics.values(features, batch.actions)
        loss, errors = critics_loss(values, targets(), batch.weights)
        (self.loss_scale * loss).backward()  # type: ignore[no-untyped-call]
        if improved is not None:
            improved()
        return loss.detach(), errors

    def _target_pass(self, batch: Batch, noise: Noise) -> Tensor:
        """Compute the targets; may run in another thread."""
        with torch.no_grad(), computing(self.precision, self.device, keeps=False):
            return self._targets(batch, noise)

    def _policy_pass(self, batch: Batch, features: Tensor, noise: Noise) -> Tensor:
        """Put a gradient into the actor; may run in another thread."""
        with torch.enable_grad(), computing(self.precision, self.device):
            loss = self._actor_loss(batch, features, noise)
        if loss.requires_grad:
            (self.loss_scale * loss).backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    def _draw_noise(self, batch: Batch) -> Noise:
        """The noise of a step; none unless a subclass draws some."""
        return ()

    @abstractmethod
    def _targets(self, batch: Batch, noise: Noise) -> Tensor:
        """Target values of the batch, (B,) float32; called without gradient."""

    def _actor_loss(self, batch: Batch, features: Tensor, noise: Noise) -> Tensor:
        """The loss of the actor: by default that of the deterministic policy gradient.

        Args:
            batch: transitions.
            features: of their states, by the critics' encoder, without gradient.
            noise: as `_draw_noise` gave it.
        """
        values = self.fixed_critics.values(features, self.network.actor(*batch.inputs), 1)[0]
        return actor_loss(values, batch.weights)

    def _normal(self, batch: Batch, deviation: float = 1.0) -> Tensor:
        """Normal noise in the shape of a batch's actions."""
        noise = torch.empty_like(batch.actions, dtype=torch.float32)
        return noise.normal_(0.0, deviation, generator=self.generator)


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
    """-mean Q_1(s, pi(s)), whose gradient is the deterministic policy gradient.

    (Silver et al., 2014.) Values (B,) are those of the first critic for the actor's own actions.
    """
    return -(weights * values.float()).mean()
