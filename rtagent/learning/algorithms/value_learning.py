"""Learning values of discrete actions, also from demonstrations: DQN, Double DQN and C51."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from rtagent.config import LearningConfig
from rtagent.learning.algorithms.algorithm import Placeable, without_gradient
from rtagent.learning.algorithms.c51 import c51_loss, c51_targets
from rtagent.learning.algorithms.dqn import double_dqn_targets, dqn_targets, huber_loss
from rtagent.learning.precision import computing
from rtagent.learning.replay.batch import Batch
from rtagent.policy.heads import expected_values, of_actions
from rtagent.policy.networks import support_of


class ValueLearning(Placeable):
    """Gradients of the value-learning algorithms; the margin loss does not count in the errors.

    Args:
        network: float32, with the head that `networks.head_of` gives.
        learning: algorithm, precision, margin of demonstrations.
    """

    def __init__(self, network: nn.Module, learning: LearningConfig) -> None:
        super().__init__(network, learning)
        support = support_of(learning)
        self._support = None if support is None else support.values().to(self.device)
        self._double = learning.algorithm == "double-dqn"
        self._margin = learning.demonstration_margin
        # Of its own, for its pass may run at the same time as that of the network.
        self._choosing = without_gradient(self.network) if self._double else None

    @property
    def networks(self) -> tuple[nn.Module, ...]:
        mine = super().networks
        return mine if self._choosing is None else (*mine, self._choosing)

    def _compute(self, batch: Batch, acting: bool) -> tuple[Tensor, Tensor]:
        networks = {"target": self.target}
        if self._choosing is not None:
            networks["successors"] = self._choosing
        passes = {
            kind: self.runner.start(kind, partial(self._successor_pass, network, batch))
            for kind, network in networks.items()
        }
        with computing(self.precision, self.device):
            output = self.network(*batch.inputs)
        outputs = {kind: result() for kind, result in passes.items()}
        return self._backward(batch, output, outputs["target"], outputs.get("successors"))

    def _backward(
        self, batch: Batch, output: Tensor, next_output: Tensor, chosen_by: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Compute the gradient of the loss; returns what `_compute` does.

        Args:
            batch: transitions.
            output: of the network, for their states.
            next_output: of the target network, for the successors.
            chosen_by: of the network, for the successors; only with Double DQN.
        """
        loss, errors = self._loss(batch, output, next_output, chosen_by)
        if self._margin > 0.0:
            # With C51 the margin acts on the means, whose gradient vanishes with their variance.
            support = self._support
            values = output if support is None else expected_values(output, support)
            loss = loss + margin_loss(values, batch.actions, batch.demonstrated, self._margin)
        (self.loss_scale * loss).backward()  # type: ignore[no-untyped-call]
        return loss.detach(), errors

    def _successor_pass(self, network: nn.Module, batch: Batch) -> Tensor:
        """The outputs for the successors; may run in another thread."""
        with torch.no_grad(), computing(self.precision, self.device, keeps=False):
            output: Tensor = network(*batch.next_inputs)
        return output

    def _loss(
        self, batch: Batch, output: Tensor, next_output: Tensor, chosen_by: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        rewards, discounts, terminals = batch.rewards, batch.discounts, batch.terminals
        if self._support is not None:
            masses = c51_targets(rewards, discounts, next_output, terminals, self._support)
            return c51_loss(output, batch.actions, masses, batch.weights)
        if chosen_by is None:
            targets = dqn_targets(rewards, discounts, next_output, terminals)
        else:
            targets = double_dqn_targets(rewards, discounts, chosen_by, next_output, terminals)
        return huber_loss(output, batch.actions, targets, batch.weights)


def margin_loss(values: Tensor, actions: Tensor, demonstrated: Tensor, margin: float) -> Tensor:
    """The large margin classification loss of demonstrated actions (Hester et al., 2018).

    J_E = max_a [Q(s, a) + l(a_E, a)] - Q(s, a_E), with l = margin where a is not a_E, and 0 where
    it is. It is 0 once every other action's value is smaller by at least the margin.

    Args:
        values: (B, actions) of the network that learns.
        actions: (B,) int64; a_E where demonstrated.
        demonstrated: (B,) bool, or (1,) for all; J_E of the others counts as 0.
        margin: not negative.

    Returns:
        The mean over all B, so that it counts in proportion to the share of demonstrations.
    """
    values = values.float()
    margins = torch.full_like(values, margin).scatter_(1, actions[:, None], 0.0)
    gaps = (values + margins).max(dim=1).values - of_actions(values, actions)
    return (demonstrated * gaps).mean()
