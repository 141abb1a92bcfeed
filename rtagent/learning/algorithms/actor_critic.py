"""What TD3, DDPG and SAC have in common: an actor that climbs its critics, and how those learn.

An algorithm of this family says which actions its targets are for, and what its actor maximises.
The target network is a slow copy of all, moved softly.

A step is two passes beside that of the critics: the targets', without gradient, and the policy's,
through the actor and the first critics and back. The second has a tape of its own, which ends at
the critics: their weights are held without gradient there. So either may run in a thread of its
own.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from functools import partial

import torch
from torch import Tensor, nn

from rtagent.config import LearningConfig
from rtagent.learning.algorithms.algorithm import Placeable
from rtagent.learning.precision import computing
from rtagent.learning.replay.batch import Batch
from rtagent.policy.actor_critic import ActorCritic, Critics

TARGET_TAU = 0.005
Drawn = tuple[Tensor, ...]
"""What an algorithm draws for a step: for its targets, and for its actor."""


class ActorCriticLearning(Placeable):
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
        self._judges = nn.ModuleDict({"critics": without_gradient(network.critics)})

    @property
    def networks(self) -> tuple[nn.Module, ...]:
        return *super().networks, self._judges

    @property
    def judges(self) -> Critics:
        """The critics that the actor climbs: the same weights, but they get no gradient."""
        critics = self._judges["critics"]
        assert isinstance(critics, Critics)
        return critics

    def compute_gradient(self, batch: Batch, *, acting: bool = True) -> tuple[float, Tensor]:
        self.network.zero_grad(set_to_none=True)
        try:
            return self._compute(batch, acting)
        finally:
            self.runner.finish()

    def _compute(self, batch: Batch, acting: bool) -> tuple[float, Tensor]:
        # Before the passes, for their threads would draw in any order.
        drawn = self._draw(batch)
        targets = self.runner.start("target", partial(self._look_ahead, batch, drawn))
        with computing(self.precision, self.device):
            features = self.network.critics.features(*batch.inputs)
        climb = partial(self._climb, batch, features.detach(), drawn)
        climbed = self.runner.start("policy", climb) if acting else None
        values = self.network.critics.values(features, batch.actions)
        loss, errors = critics_loss(values, targets(), batch.weights)
        (self.loss_scale * loss).backward()  # type: ignore[no-untyped-call]
        if climbed is not None:
            climbed()
        return float(loss.detach()), errors

    def _look_ahead(self, batch: Batch, drawn: Drawn) -> Tensor:
        """The pass of the targets, whichever thread it runs in."""
        with torch.no_grad(), computing(self.precision, self.device, keeps=False):
            return self._targets(batch, drawn)

    def _climb(self, batch: Batch, features: Tensor, drawn: Drawn) -> Tensor:
        """The pass of the policy, whichever thread it runs in: put a gradient into the actor."""
        with torch.enable_grad(), computing(self.precision, self.device):
            loss = self._actor_loss(batch, features, drawn)
        if loss.requires_grad:
            (self.loss_scale * loss).backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    def _draw(self, batch: Batch) -> Drawn:
        """Noise of a step; none unless the algorithm says so."""
        return ()

    @abstractmethod
    def _targets(self, batch: Batch, drawn: Drawn) -> Tensor:
        """What the critics should say of the batch: (B,) float32; called without gradient."""

    def _actor_loss(self, batch: Batch, features: Tensor, drawn: Drawn) -> Tensor:
        """What the actor makes smaller, by the deterministic policy gradient.

        Args:
            batch: transitions.
            features: of their states, by the critics' encoder, without gradient.
            drawn: noise.
        """
        values = self.judges.values(features, self.network.actor(*batch.inputs), 1)[0]
        return actor_loss(values, batch.weights)

    def _normal(self, batch: Batch, deviation: float = 1.0) -> Tensor:
        """Normal noise in the shape of a batch's actions."""
        noise = torch.empty_like(batch.actions, dtype=torch.float32)
        return noise.normal_(0.0, deviation, generator=self._generator)


def without_gradient(module: nn.Module) -> nn.Module:
    """The same tensors, which a gradient passes and does not enter."""
    shared: dict[int, Tensor] = {id(each): each for each in module.buffers()}
    for each in module.parameters():
        shared[id(each)] = nn.Parameter(each.detach(), requires_grad=False)
    return copy.deepcopy(module, shared)


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
