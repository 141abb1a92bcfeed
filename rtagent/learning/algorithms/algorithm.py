"""What an update needs to know of an algorithm.

An algorithm is two networks and a few pure functions: the target, and the loss of the network
against it. `shared_update.py` applies the gradient and updates the target network, for several
learners share both.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from rtagent.config import LearningConfig, Precision
from rtagent.errors import UserError
from rtagent.learning.replay.batch import Batch
from rtagent.placement.layers import StepRunner
from rtagent.policy.actor_critic import acting_part
from rtagent.policy.architectures import channels_last


class Algorithm(ABC):
    """Gradients of one algorithm.

    Args:
        network: float32, on the device where it computes.
        learning: settings of the run.

    Raises:
        UserError: the network does not learn.

    Attributes:
        network: the network that learns; gradients are left in its parameters.
        device: of the networks, and of the batches.
        target: the delayed copy of the network.
        parts: parts of the network, in the order of its flat state. Each is clipped and updated
            separately; the first is the acting part, the policy.
        delay: updates for one update of the acting part; above 1 only if there is another part.
        target_tau: how far the target moves at every `delay`-th update. If None, the target is
            replaced in its period instead.
        precision: of the passes; float32 for `auto` until the fastest precision was measured.
        loss_scale: factor of the losses, and so of the gradients in the parameters.
        generator: source of the noise. If None, torch's default generator.
    """

    parts: list[nn.Module]
    delay = 1
    generator: torch.Generator | None = None

    def __init__(self, network: nn.Module, learning: LearningConfig) -> None:
        if not any(each.requires_grad for each in acting_part(network).parameters()):
            raise UserError(
                "no parameter of the policy's network requires a gradient, so there is nothing to "
                "learn; set learning.processes = 0"
            )
        self.network = channels_last(network)
        self.parts = [self.network]
        self.device = next(network.parameters()).device
        self.target = copy.deepcopy(network).requires_grad_(False)
        self.target_tau = learning.target_tau
        wanted = learning.precision
        self.precision: Precision = "float32" if wanted == "auto" else wanted
        self.loss_scale = 1.0

    @property
    def networks(self) -> tuple[nn.Module, ...]:
        """The networks that compute in a step; a layer has one name in all that have it."""
        return self.network, self.target

    @abstractmethod
    def compute_gradient(self, batch: Batch, *, acting: bool = True) -> tuple[Tensor, Tensor]:
        """Put the gradient of the batch, times the loss scale, into the network's parameters.

        Args:
            batch: transitions.
            acting: whether the acting part gets a gradient; always True if `delay` is 1.

        Returns:
            The loss (), and the error of each sample (B,), not negative; without gradient.
        """


class Placeable(Algorithm):
    """An algorithm whose step consists of passes, which a runner may place on several cores.

    Attributes:
        runner: starts the passes; the default one runs all of them on this core.
    """

    def __init__(self, network: nn.Module, learning: LearningConfig) -> None:
        super().__init__(network, learning)
        self.runner = StepRunner()

    def compute_gradient(self, batch: Batch, *, acting: bool = True) -> tuple[Tensor, Tensor]:
        self.network.zero_grad(set_to_none=True)
        try:
            return self._compute(batch, acting)
        finally:
            self.runner.finish()

    @abstractmethod
    def _compute(self, batch: Batch, acting: bool) -> tuple[Tensor, Tensor]:
        """Compute it, where no gradient is left from before; parts may still run afterwards."""


def without_gradient(module: nn.Module) -> nn.Module:
    """A module with the same tensors: gradients pass through it, and its weights get none.

    The two may compute in two threads at a time: what a module keeps in its attributes is its own,
    and the averages of a batch normalization, which both have, are updated by the given module
    alone.
    """
    shared: dict[int, Tensor] = {id(each): each for each in module.buffers()}
    for each in module.parameters():
        shared[id(each)] = nn.Parameter(each.detach(), requires_grad=False)
    copied = copy.deepcopy(module, shared)
    for layer in copied.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            layer.track_running_stats = False
    return copied


def bootstrapped(rewards: Tensor, discounts: Tensor, values: Tensor, terminals: Tensor) -> Tensor:
    """R + gamma**n * V(s'), without the second term where s' is terminal.

    Args:
        rewards, discounts, terminals: (B,).
        values: (B,) of the successors; of terminal ones they may be anything.

    Returns:
        (B,) float32, without gradient.
    """
    with torch.no_grad():
        return torch.where(terminals, rewards, rewards + discounts * values.float())
