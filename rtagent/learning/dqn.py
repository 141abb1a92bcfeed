"""DQN on one page: two networks, an optimizer, one step."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from rtagent.config import LearningConfig
from rtagent.learning.losses import dqn_loss, dqn_targets
from rtagent.learning.replay import Batch
from rtagent.networks import channels_last


@dataclass(frozen=True)
class UpdateResult:
    """One update.

    Attributes:
        loss: mean Huber loss.
        gradient_norm: before clipping.
        applied: False if loss or gradient was not finite; the weights are then as before.
        errors: (B,) temporal-difference errors.
    """

    loss: float
    gradient_norm: float
    applied: bool
    errors: Tensor


class DqnUpdate:
    """Deep Q-learning with a target network and Adam (Mnih et al., 2015; Kingma and Ba, 2015).

    Args:
        network: float32; it is trained in place.
        learning: step size, clipping, period of the target network, precision.

    Attributes:
        network: the network that learns.
        target: its delayed copy.
        optimizer: Adam.
        updates: steps applied so far.
    """

    def __init__(self, network: nn.Module, learning: LearningConfig) -> None:
        self.network = channels_last(network)
        self.target = copy.deepcopy(self.network).requires_grad_(False)
        self.optimizer = torch.optim.Adam(
            self.network.parameters(), lr=learning.learning_rate, fused=True
        )
        self.updates = 0
        self._learning = learning
        self._bfloat16 = learning.precision == "bfloat16" or (
            learning.precision == "auto" and has_fast_bfloat16()
        )

    def step(self, batch: Batch) -> UpdateResult:
        """One gradient step: compute, check, apply."""
        loss, errors = self.compute_gradient(batch)
        norm = self.clip()
        result = UpdateResult(
            loss, norm, bool(torch.isfinite(torch.tensor([loss, norm])).all()), errors
        )
        if result.applied:
            self.apply_gradient()
        return result

    def compute_gradient(self, batch: Batch) -> tuple[float, Tensor]:
        """Put the gradient of the batch into the network's parameters.

        Returns:
            The loss, and the temporal-difference errors (B,).
        """
        with torch.autocast("cpu", torch.bfloat16, enabled=self._bfloat16):
            with torch.no_grad():
                next_values = self.target(batch.next_observations)
            values = self.network(batch.observations)
        targets = dqn_targets(batch.rewards, batch.discounts, next_values, batch.terminals)
        loss, errors = dqn_loss(values, batch.actions, targets)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        return float(loss.detach()), errors

    def apply_gradient(self) -> None:
        """Step the optimizer with the gradient in the parameters; follow with the target."""
        self.optimizer.step()
        self.updates += 1
        if self.updates % self._learning.target_period == 0:
            self.synchronize_target()

    def synchronize_target(self) -> None:
        """Copy the learning network's state to the target network."""
        self.target.load_state_dict(self.network.state_dict())

    def clip(self) -> float:
        """Clip the gradient in the parameters; its norm before."""
        limit = self._learning.gradient_clip or float("inf")
        return float(nn.utils.clip_grad_norm_(self.network.parameters(), limit))


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
