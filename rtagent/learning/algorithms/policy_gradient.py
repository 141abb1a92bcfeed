"""What PPO and A2C have in common: a policy that is improved on its newest decisions.

A rollout is the newest decisions, in the order in which they were executed. The ledger gives the
executed actions, and the probabilities that the acting policy gave them. The default behaviour has
no probability and does not need one: it counts as part of how the world answers the last decision.
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
from rtagent.learning.replay.rollouts import Rollout
from rtagent.policy.actor_critic import ActorValue
from rtagent.policy.heads import of_actions
from rtagent.policy.inputs import Inputs

PASS = 256
"""Most states in one forward pass over a rollout."""


class PolicyGradient(Algorithm):
    """Gradients of a policy, and of the value function that its advantages are computed with."""

    network: ActorValue

    def __init__(self, network: ActorValue, learning: LearningConfig) -> None:
        super().__init__(network, learning)
        self.parts = [network.actor, network.value]
        self._learning = learning

    def rollout_length(self, batch_size: int) -> int:
        """How many decisions a rollout has, given the batch size of an update."""
        return self._learning.rollout

    @abstractmethod
    def updates_of(self, count: int, batch_size: int, rng: np.random.Generator) -> list[Ints]:
        """The updates of a rollout of `count` decisions: positions of at most `batch_size` each."""

    @abstractmethod
    def _policy_loss(self, log_probabilities: Tensor, batch: Batch) -> Tensor:
        """The loss of the policy, whose log probabilities of the executed actions are (B,)."""

    def prepare(self, rollout: Rollout) -> Batch:
        """The rollout with advantages, targets and log probabilities by the current weights."""
        batch = rollout.batch
        with torch.no_grad(), computing(self.precision, self.device):
            # V-trace is a loop of steps with few numbers each, which the processor does faster.
            logits = self._in_passes(self.network.actor, batch.inputs).cpu()
            values = self._in_passes(self.network.value, batch.inputs)[:, 0].cpu()
            next_values = self._in_passes(self.network.value, batch.next_inputs)[:, 0].cpu()
        current = of_actions(logits.log_softmax(dim=1), batch.actions)
        discounts = batch.discounts.where(~batch.terminals, torch.zeros_like(batch.discounts))
        targets, advantages = vtrace(
            values, next_values, batch.rewards, discounts, current - rollout.log_probabilities,
            rollout.continues, self._learning.trace,
        )
        return replace(batch, log_probabilities=current, advantages=advantages, targets=targets)

    def compute_gradient(self, batch: Batch, *, acting: bool = True) -> tuple[Tensor, Tensor]:
        learning = self._learning
        with computing(self.precision, self.device):
            logits = self.network.actor(*batch.inputs).float()
            values = self.network.value(*batch.inputs).float()[:, 0]
        log_probabilities = logits.log_softmax(dim=1)
        # A user's network excludes actions by logits of -inf, and 0 * -inf would be no number.
        logarithms = log_probabilities.clamp(min=torch.finfo().min)
        entropy = -(log_probabilities.exp() * logarithms).sum(dim=1).mean()
        policy = self._policy_loss(of_actions(log_probabilities, batch.actions), batch)
        errors = batch.targets - values
        loss = policy + functional.mse_loss(values, batch.targets.expand_as(values))
        loss = loss - learning.entropy * entropy
        self.network.zero_grad(set_to_none=True)
        (self.loss_scale * loss).backward()
        return loss.detach(), errors.detach().abs()

    def _in_passes(self, module: torch.nn.Module, inputs: Inputs) -> Tensor:
        # As many states as an update, whose memory was asked for. With three or more, no part has a
        # single state, which batch normalization refuses.
        most = max(3, min(PASS, self._learning.update_size))
        count = -(-len(inputs[0]) // most)
        parts = zip(*(torch.tensor_split(each, count) for each in inputs), strict=True)
        return torch.cat([
            module(*(each.to(self.device) for each in part)).float() for part in parts
        ])
