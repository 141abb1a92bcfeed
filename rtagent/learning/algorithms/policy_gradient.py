"""What PPO and A2C have in common: a policy that is improved on what it has just done.

A stretch is a number of decisions in the order in which they were executed, the newest that there
are. What was executed counts, and what the acting policy's probability of it was: both come from
the ledger. The default behaviour has no probability and needs none: it belongs to the world, which
answered the last decision with it.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from rtagent.config import LearningConfig
from rtagent.learning.algorithms.algorithm import Algorithm
from rtagent.learning.algorithms.vtrace import vtrace
from rtagent.learning.precision import computing
from rtagent.learning.replay.batch import Batch
from rtagent.learning.replay.look_up import Ints
from rtagent.learning.replay.rollouts import Stretch
from rtagent.policy.actor_critic import ActorValue
from rtagent.policy.heads import of_actions
from rtagent.policy.inputs import Inputs

PASS = 256
"""States that are valued at once."""


class PolicyGradient(Algorithm):
    """Gradients of a policy and of the value that it is compared with."""

    network: ActorValue

    def __init__(self, network: ActorValue, learning: LearningConfig) -> None:
        super().__init__(network, learning)
        self.parts = [network.actor, network.value]
        self._learning = learning

    def stretch_for(self, batch_size: int) -> int:
        """Decisions of a stretch, where an update is of so many."""
        return self._learning.rollout

    @abstractmethod
    def updates_of(self, count: int, batch_size: int, rng: np.random.Generator) -> list[Ints]:
        """Which of the decisions of a stretch each of its updates is for: at most so many."""

    @abstractmethod
    def _policy_loss(self, log_probabilities: Tensor, batch: Batch) -> Tensor:
        """Of the executed actions, (B,) by the policy that learns."""

    def prepare(self, stretch: Stretch) -> Batch:
        """The stretch with advantages, targets and probabilities of the policy that learns now."""
        batch = stretch.batch
        with torch.no_grad(), computing(self.precision, self.device):
            # What is left are steps in their order, of a few numbers each: for the processor.
            logits = self._in_passes(self.network.actor, batch.inputs).cpu()
            values = self._in_passes(self.network.value, batch.inputs)[:, 0].cpu()
            next_values = self._in_passes(self.network.value, batch.next_inputs)[:, 0].cpu()
        mine = of_actions(logits.log_softmax(dim=1), batch.actions)
        discounts = batch.discounts.where(~batch.terminals, torch.zeros_like(batch.discounts))
        targets, advantages = vtrace(
            values, next_values, batch.rewards, discounts, mine - stretch.log_probabilities,
            stretch.continues & ~batch.terminals, self._learning.trace,
        )
        return replace(batch, log_probabilities=mine, advantages=advantages, targets=targets)

    def compute_gradient(self, batch: Batch, *, acting: bool = True) -> tuple[float, Tensor]:
        learning = self._learning
        with computing(self.precision, self.device):
            logits = self.network.actor(*batch.inputs).float()
            values = self.network.value(*batch.inputs).float()[:, 0]
        logarithms = logits.log_softmax(dim=1)
        entropy = -(logarithms.exp() * logarithms).sum(dim=1).mean()
        policy = self._policy_loss(of_actions(logarithms, batch.actions), batch)
        errors = batch.targets - values
        loss = policy + functional.mse_loss(values, batch.targets.expand_as(values))
        loss = loss - learning.entropy * entropy
        self.network.zero_grad(set_to_none=True)
        (self.loss_scale * loss).backward()
        return float(loss.detach()), errors.detach().abs()

    def _in_passes(self, module: torch.nn.Module, inputs: Inputs) -> Tensor:
        parts = zip(*(torch.split(each, PASS) for each in inputs), strict=True)
        return torch.cat([
            module(*(each.to(self.device) for each in part)).float() for part in parts
        ])
