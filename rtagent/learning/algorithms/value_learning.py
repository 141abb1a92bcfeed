"""Learning values of discrete actions: one update for DQN, Double DQN and C51."""

from __future__ import annotations

import copy
from typing import Protocol

import torch
from torch import Tensor, nn

from rtagent.config import LearningConfig
from rtagent.learning.algorithms.demonstrations import margin_loss
from rtagent.learning.precision import uses_bfloat16
from rtagent.learning.replay.batch import Batch
from rtagent.policy.networks import channels_last


class ValueLoss(Protocol):
    """Where the algorithms differ."""

    @property
    def double(self) -> bool:
        """Whether the network that learns is asked about the successors, too."""
        ...

    def loss(
        self, batch: Batch, output: Tensor, next_output: Tensor, chosen_by: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The loss, and how far off each sample was.

        Args:
            batch: transitions.
            output: (B, actions, ...) of the network that learns, for the states.
            next_output: (B, actions, ...) of the target network, for the successors.
            chosen_by: as `output`, for the successors; None unless `double`.

        Returns:
            A scalar, and (B,), not negative, without gradient.
        """
        ...

    def values(self, output: Tensor) -> Tensor:
        """The values (B, actions) of an output."""
        ...


class ValueLearning:
    """Gradients of one value-learning algorithm.

    Args:
        network: float32, with the head that `networks.head_of` gives.
        learning: precision, margin of demonstrations.
        loss: of the algorithm.

    Attributes:
        network: the network that learns; gradients are left in its parameters.
        target: its delayed copy.
        acting: the same network.
        delay: 1, all is updated together.
        target_tau: as configured.
    """

    delay = 1

    def __init__(self, network: nn.Module, learning: LearningConfig, loss: ValueLoss) -> None:
        self.network = channels_last(network)
        self.target = copy.deepcopy(self.network).requires_grad_(False)
        self.acting = self.network
        self.target_tau = learning.target_tau
        self._loss = loss
        self._margin = learning.demonstration_margin
        self._bfloat16 = uses_bfloat16(network, learning)

    def compute_gradient(self, batch: Batch, *, acting: bool = True) -> tuple[float, Tensor]:
        """Put the gradient of the batch into the network's parameters.

        Returns:
            The loss, and how far off each sample was (B,). The loss of the margin is part of the
            first only.
        """
        with torch.autocast("cpu", torch.bfloat16, enabled=self._bfloat16):
            output = self.network(batch.observations)
            with torch.no_grad():
                next_output = self.target(batch.next_observations)
                # After the pass with gradient: autocast keeps the weights it has cast, and in older
                # versions of torch those cast here would cut that pass off from its parameters.
                chosen_by = self.network(batch.next_observations) if self._loss.double else None
        loss, errors = self._loss.loss(batch, output, next_output, chosen_by)
        if self._margin > 0.0:
            values = self._loss.values(output)
            loss = loss + margin_loss(values, batch.actions, batch.demonstrated, self._margin)
        self.network.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        return float(loss.detach()), errors
