"""Algorithms: from a batch to a gradient, and one optimizer for those who learn alone.

Each algorithm is two networks and a few pure functions of `losses.py`: what the target is, and how
far the network is from it. Who applies the gradient, and brings the target network up to date, is
decided elsewhere, for several learners share both. Who does that sees no more of an algorithm than
`Algorithm` says.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from rtagent.config import LearningConfig
from rtagent.learning import losses
from rtagent.learning.precision import uses_bfloat16
from rtagent.learning.replay.batch import Batch
from rtagent.learning.td3 import TD3
from rtagent.policy.actor_critic import ActorCritic
from rtagent.policy.heads import expected_values
from rtagent.policy.networks import channels_last, support_of


class Algorithm(Protocol):
    """What an update needs to know of an algorithm."""

    @property
    def network(self) -> nn.Module:
        """What learns; gradients are left in its parameters."""
        ...

    @property
    def target(self) -> nn.Module:
        """Its delayed copy."""
        ...

    @property
    def acting(self) -> nn.Module:
        """The part of the network that acts, which comes first in its flat state; or all of it."""
        ...

    @property
    def delay(self) -> int:
        """Updates for one of the acting part; above 1 only if there is another part."""
        ...

    @property
    def target_tau(self) -> float | None:
        """How far the target moves at every `delay`-th update; none: copied by its period."""
        ...

    def compute_gradient(self, batch: Batch, *, acting: bool = True) -> tuple[float, Tensor]:
        """Put the gradient of the batch into the network's parameters.

        Args:
            batch: transitions.
            acting: whether the acting part gets one; always, if `delay` is 1.

        Returns:
            The loss, and how far off each sample was (B,), not negative.
        """
        ...


def algorithm_for(
    network: nn.Module, learning: LearningConfig, generator: torch.Generator | None = None
) -> Algorithm:
    """The algorithm that trains a network.

    Args:
        network: float32, as `actor_critic.build_learned` builds it.
        learning: of the run.
        generator: of what the algorithm draws; torch's own if none.
    """
    if isinstance(network, ActorCritic):
        return TD3(network, learning, generator)
    return ValueLearning(network, learning)


class ValueLearning:
    """Gradients of one value-learning algorithm: DQN, Double DQN or C51.

    Args:
        network: float32, with the head that `networks.head_of` gives.
        learning: algorithm, support, precision, margin of demonstrations.

    Attributes:
        network: the network that learns; gradients are left in its parameters.
        target: its delayed copy.
        acting: the same network.
        delay: 1, all is updated together.
        target_tau: as configured.
    """

    delay = 1

    def __init__(self, network: nn.Module, learning: LearningConfig) -> None:
        self.network = channels_last(network)
        self.target = copy.deepcopy(self.network).requires_grad_(False)
        self.acting = self.network
        self.target_tau = learning.target_tau
        self._double = learning.algorithm == "double-dqn"
        support = support_of(learning)
        self._support = None if support is None else support.values()
        self._margin = learning.demonstration_margin
        self._bfloat16 = uses_bfloat16(network, learning)

    def compute_gradient(self, batch: Batch, *, acting: bool = True) -> tuple[float, Tensor]:
        """Put the gradient of the batch into the network's parameters.

        Returns:
            The loss, and how far off each sample was (B,): the absolute temporal-difference error,
            for C51 the Kullback-Leibler divergence. The loss of the margin is part of the first
            only.
        """
        with torch.autocast("cpu", torch.bfloat16, enabled=self._bfloat16):
            output = self.network(batch.observations)
            with torch.no_grad():
                next_output = self.target(batch.next_observations)
                # After the pass with gradient: autocast keeps the weights it has cast, and in older
                # versions of torch those cast here would cut that pass off from its parameters.
                chosen_by = self.network(batch.next_observations) if self._double else None
        loss, errors = self._loss(batch, output, next_output, chosen_by)
        if self._margin > 0.0:
            loss = loss + self._margin_loss(batch, output)
        self.network.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        return float(loss.detach()), errors

    def _loss(
        self, batch: Batch, output: Tensor, next_output: Tensor, chosen_by: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        rewards, discounts, terminals = batch.rewards, batch.discounts, batch.terminals
        if self._support is not None:
            masses = losses.c51_targets(rewards, discounts, next_output, terminals, self._support)
            return losses.c51_loss(output, batch.actions, masses, batch.weights)
        if chosen_by is not None:
            targets = losses.double_dqn_targets(
                rewards, discounts, chosen_by, next_output, terminals
            )
        else:
            targets = losses.dqn_targets(rewards, discounts, next_output, terminals)
        return losses.huber_loss(output, batch.actions, targets, batch.weights)

    def _margin_loss(self, batch: Batch, output: Tensor) -> Tensor:
        """Of C51 by the means, whose gradient vanishes with a distribution's variance."""
        values = output if self._support is None else expected_values(output, self._support)
        return losses.margin_loss(values, batch.actions, batch.demonstrated, self._margin)


@dataclass(frozen=True)
class UpdateResult:
    """One update.

    Attributes:
        loss: of the batch.
        gradient_norm: before clipping.
        applied: False if loss or gradient was not finite; the weights are then as before.
        errors: (B,) as `Algorithm.compute_gradient` gives them.
    """

    loss: float
    gradient_norm: float
    applied: bool
    errors: Tensor


class LocalUpdate:
    """Learning alone in one process: Adam (Kingma and Ba, 2015) and the target network.

    Args:
        network: as `algorithm_for` takes it; it is trained in place.
        learning: algorithm, step size, clipping, how the target network follows.

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
        self._parts = self._split()
        self._optimizers = [
            torch.optim.Adam(part, lr=learning.learning_rate, fused=True) for part in self._parts
        ]

    def step(self, batch: Batch) -> UpdateResult:
        """One gradient step: compute, check, apply; then the target network, if it is due."""
        acting = (self.updates + 1) % self.algorithm.delay == 0
        loss, errors = self.algorithm.compute_gradient(batch, acting=acting)
        limit = self._learning.gradient_clip or float("inf")
        norms = [float(nn.utils.clip_grad_norm_(part, limit)) for part in self._parts]
        norm = math.hypot(*norms)
        finite = math.isfinite(loss) and math.isfinite(norm)
        if finite:
            # Parameters without a gradient are left alone.
            for optimizer in self._optimizers:
                optimizer.step()
            self.updates += 1
            self._follow()
        return UpdateResult(loss, norm, finite, errors)

    def _split(self) -> list[list[nn.Parameter]]:
        """The parameters that are updated together."""
        parameters = list(self.network.parameters())
        if self.algorithm.delay == 1:
            return [parameters]
        acting = list(self.algorithm.acting.parameters())
        return [parameters[len(acting) :], acting]

    def _follow(self) -> None:
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
