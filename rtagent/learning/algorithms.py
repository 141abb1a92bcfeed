"""Algorithms: from a batch to a gradient, and one optimizer for those who learn alone.

Each algorithm is two networks and two pure functions of `losses.py`: what the target is, and how
far the network is from it. Who applies the gradient, and brings the target network up to date, is
decided elsewhere, for several learners share both.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from rtagent.config import LearningConfig
from rtagent.learning import losses
from rtagent.learning.replay import Batch
from rtagent.networks import channels_last, head_of


class ValueLearning:
    """Gradients of one value-learning algorithm: DQN, Double DQN or C51.

    Args:
        network: float32, with the head that `networks.head_of(learning)` describes.
        learning: algorithm, support, precision.

    Attributes:
        network: the network that learns; gradients are left in its parameters.
        target: its delayed copy.
    """

    def __init__(self, network: nn.Module, learning: LearningConfig) -> None:
        self.network = channels_last(network)
        self.target = copy.deepcopy(self.network).requires_grad_(False)
        self._double = learning.algorithm == "double-dqn"
        support = head_of(learning).support
        self._support = None if support is None else support.values()
        # Without convolutions bfloat16 gains no time, and it costs precision.
        convolves = any(isinstance(module, nn.Conv2d) for module in network.modules())
        self._bfloat16 = learning.precision == "bfloat16" or (
            learning.precision == "auto" and convolves and has_fast_bfloat16()
        )

    def compute_gradient(self, batch: Batch) -> tuple[float, Tensor]:
        """Put the gradient of the batch into the network's parameters.

        Returns:
            The loss, and how far off each sample was (B,): the absolute temporal-difference error,
            for C51 the Kullback-Leibler divergence.
        """
        with torch.autocast("cpu", torch.bfloat16, enabled=self._bfloat16):
            output = self.network(batch.observations)
            with torch.no_grad():
                next_output = self.target(batch.next_observations)
                # After the pass with gradient: autocast keeps the weights it has cast, and in older
                # versions of torch those cast here would cut that pass off from its parameters.
                chosen_by = self.network(batch.next_observations) if self._double else None
        loss, errors = self._loss(batch, output, next_output, chosen_by)
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


@dataclass(frozen=True)
class UpdateResult:
    """One update.

    Attributes:
        loss: of the batch.
        gradient_norm: before clipping.
        applied: False if loss or gradient was not finite; the weights are then as before.
        errors: (B,) as `ValueLearning.compute_gradient` gives them.
    """

    loss: float
    gradient_norm: float
    applied: bool
    errors: Tensor


class LocalUpdate:
    """Learning alone in one process: Adam (Kingma and Ba, 2015) and the target network.

    Args:
        network: as `ValueLearning` takes it; it is trained in place.
        learning: algorithm, step size, clipping, how the target network follows.

    Attributes:
        algorithm: computes the gradients.
        network: the network that learns.
        updates: steps applied so far.
    """

    def __init__(self, network: nn.Module, learning: LearningConfig) -> None:
        self.algorithm = ValueLearning(network, learning)
        self.network = self.algorithm.network
        self.updates = 0
        self._learning = learning
        self._optimizer = torch.optim.Adam(
            self.network.parameters(), lr=learning.learning_rate, fused=True
        )

    def step(self, batch: Batch) -> UpdateResult:
        """One gradient step: compute, check, apply; then the target network, if it is due."""
        loss, errors = self.algorithm.compute_gradient(batch)
        limit = self._learning.gradient_clip or float("inf")
        norm = float(nn.utils.clip_grad_norm_(self.network.parameters(), limit))
        finite = bool(torch.isfinite(torch.tensor([loss, norm])).all())
        if finite:
            self._optimizer.step()
            self.updates += 1
            self._follow()
        return UpdateResult(loss, norm, finite, errors)

    def _follow(self) -> None:
        learning, online = self._learning, self.network.state_dict()
        if learning.target_tau is None:
            if self.updates % learning.target_period == 0:
                self.algorithm.target.load_state_dict(online)
            return
        for name, value in self.algorithm.target.state_dict().items():
            if value.is_floating_point():
                value.lerp_(online[name], learning.target_tau)


def has_fast_bfloat16(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether the processor multiplies bfloat16 itself (x86 and Arm flags).

    Args:
        cpuinfo: where the kernel lists them.
    """
    try:
        words = set(cpuinfo.read_text().split())
    except OSError:
        return False
    return bool(words & {"avx512_bf16", "amx_bf16", "bf16", "svebf16"})
