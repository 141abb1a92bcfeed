"""Heads: the last layers of a network.

For discrete actions a plain head gives one value per action. A dueling head sums a value of the
state and advantages of the actions. A distributional head gives, per action, the logits of a
distribution over fixed returns. The last two combine. The head of a policy gives the logits of the
actions' probabilities. For continuous actions, the head gives the action itself, or a distribution.
A critic has no head of these: it goes on from features.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Support:
    """The returns over which a distribution is learned (Bellemare et al., 2017).

    Attributes:
        atoms: number of returns, at least 2.
        v_min: the smallest one.
        v_max: the largest one.
    """

    atoms: int
    v_min: float
    v_max: float

    def values(self) -> Tensor:
        """(atoms,) float32, z_i = v_min + i (v_max - v_min) / (atoms - 1)."""
        return torch.linspace(self.v_min, self.v_max, self.atoms)


@dataclass(frozen=True)
class Head:
    """The head of a network of action values.

    Attributes:
        dueling: whether the state's value and the actions' advantages have separate streams.
        support: of the value distributions. If None, the values are plain.
    """

    dueling: bool = False
    support: Support | None = None

    @property
    def streams(self) -> int:
        """Number of streams of features that the head takes, side by side."""
        return 2 if self.dueling else 1

    def layer(self, features: int, actions: int) -> nn.Module:
        """The last layer, from (B, streams * features) to (B, *output_shape(actions))."""
        width = 1 if self.support is None else self.support.atoms
        last: nn.Module = nn.Linear(features, actions * width)
        if self.dueling:
            last = Dueling(features, actions, width)
        if self.support is None:
            return last
        return nn.Sequential(last, nn.Unflatten(1, (actions, width)))

    def output_shape(self, actions: int) -> tuple[int, ...]:
        """Shape of the answer to one observation: (actions,), or (actions, atoms) of logits."""
        return (actions,) if self.support is None else (actions, self.support.atoms)

    def describe(self) -> str:
        """Suffix to a network's name, for display and for checkpoints; empty if plain."""
        text = ", dueling" if self.dueling else ""
        if self.support is not None:
            low, high = self.support.v_min, self.support.v_max
            text += f", c51 of {self.support.atoms} atoms from {low:.15g} to {high:.15g}"
        return text


PLAIN = Head()


@dataclass(frozen=True)
class PolicyHead(Head):
    """The last layer of a policy over discrete actions: the logits of their probabilities.

    Attributes:
        algorithm: the one that trains it.
    """

    algorithm: str = "ppo"

    def layer(self, features: int, actions: int) -> nn.Module:
        last = nn.Linear(features, actions)
        # At first all actions are about equally probable.
        nn.init.orthogonal_(last.weight, 0.01)
        nn.init.zeros_(last.bias)
        return last

    def describe(self) -> str:
        return f", {self.algorithm}"


@dataclass(frozen=True)
class ActionHead:
    """The last layer of an actor: the action itself, squashed into its bounds.

    Attributes:
        low: smallest value of each component.
        high: largest value of each component.
        algorithm: the one that trains it.
        critics: number of critics that estimate the values of its actions.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]
    algorithm: str = "td3"
    critics: int = 2

    streams = 1

    def layer(self, features: int, actions: int) -> nn.Module:
        return nn.Sequential(nn.Linear(features, actions), Squash(self.low, self.high))

    def output_shape(self, actions: int) -> tuple[int, ...]:
        return (actions,)

    def describe(self) -> str:
        return f", {self.algorithm}"


@dataclass(frozen=True)
class GaussianHead(ActionHead):
    """The last layer of a random actor: normal distributions, squashed by tanh.

    It gives the means of all components, and after them the logarithms of their standard
    deviations, both before squashing (SAC; Haarnoja et al., arXiv 1801.01290, Appendix C).
    """

    algorithm: str = "sac"

    def layer(self, features: int, actions: int) -> nn.Module:
        return nn.Linear(features, 2 * actions)

    def output_shape(self, actions: int) -> tuple[int, ...]:
        return (2 * actions,)


@dataclass(frozen=True)
class FeatureHead:
    """No last layer: the network gives its features."""

    streams = 1

    def layer(self, features: int, actions: int) -> nn.Module:
        return nn.Identity()


AnyHead: TypeAlias = "Head | ActionHead | FeatureHead"
OutputHead: TypeAlias = "Head | ActionHead"
FEATURES = FeatureHead()
LOG_STD_MIN, LOG_STD_MAX = -20.0, 2.0
"""Limits of the logarithm of a standard deviation, as in the authors' code of SAC."""
FLAT = 3.0
"""Beyond this input the slope of tanh is below 0.01."""
LEAST_SLOPE = 1.0 - math.tanh(FLAT) ** 2


class Bounds:
    """The range of each component of an action, as tensors.

    They are no part of a module's state, and keep float32 whatever the module computes in.
    """

    def __init__(self, low: Sequence[float], high: Sequence[float]) -> None:
        self.low = torch.tensor(low, dtype=torch.float32)
        self.high = torch.tensor(high, dtype=torch.float32)
        self.half = (self.high - self.low) / 2.0
        self._middle = (self.high + self.low) / 2.0
        # A component whose bounds are equal is scaled to 0, not to 0 / 0.
        self._unit = self.half.where(self.half > 0.0, torch.ones_like(self.half))
        self._copies: dict[torch.device, Bounds] = {}

    def to(self, device: torch.device) -> Bounds:
        """The same bounds on a device; they are copied there once."""
        if device == self.low.device:
            return self
        if device not in self._copies:
            there = copy.copy(self)
            for name, each in vars(self).items():
                if isinstance(each, Tensor):
                    setattr(there, name, each.to(device))
            self._copies[device] = there
        return self._copies[device]

    def scaled(self, actions: Tensor) -> Tensor:
        """(B, n) in the environment's units to [-1, 1]."""
        here = self.to(actions.device)
        return (actions - here._middle) / here._unit

    def unscaled(self, values: Tensor) -> Tensor:
        """(B, n) in [-1, 1] to the environment's units."""
        here = self.to(values.device)
        return values * here.half + here._middle


class Tanh(torch.autograd.Function):
    """tanh with other gradients where it is flat, so that an actor can return from there.

    Adam steps as far on a tiny slope as on a steep one. So an actor that untrained critics send to
    one end goes on until the slope of tanh is 0 in float32, and never returns. Beyond `FLAT` the
    slope is 0 for steps outwards, and for steps inwards that at `FLAT`. Up to `FLAT` it is the
    slope of tanh: a larger one inwards would favour the middle.
    """

    @staticmethod
    def forward(context: Any, inputs: Tensor) -> Tensor:
        """The hyperbolic tangent."""
        outputs = torch.tanh(inputs)
        context.save_for_backward(inputs, outputs)
        return outputs

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Tensor:
        """The gradient with the slope of tanh, changed beyond `FLAT`."""
        inputs, outputs = context.saved_tensors
        (gradient,) = gradients
        slope = 1.0 - outputs.square()
        outwards = slope.where(inputs.abs() <= FLAT, torch.zeros_like(slope))
        # A step goes against the gradient.
        inwards = gradient * inputs > 0.0
        return gradient * torch.where(inwards, slope.clamp(min=LEAST_SLOPE), outwards)


class Squash(nn.Module):
    """Squashes into bounds, (n,) each: their middle + half their distance * tanh(x), see `Tanh`."""

    def __init__(self, low: Sequence[float], high: Sequence[float]) -> None:
        super().__init__()
        self._bounds = Bounds(low, high)

    def forward(self, inputs: Tensor) -> Tensor:
        """(B, n) to (B, n), within the bounds."""
        squashed: Tensor = Tanh.apply(inputs)  # type: ignore[no-untyped-call]
        return self._bounds.unscaled(squashed)


class SquashedMean(Squash):
    """Turns answers of a `GaussianHead` into mean actions (n,), squashed into the bounds."""

    def forward(self, answers: Tensor) -> Tensor:
        """(..., 2 n) to (..., n), within the bounds."""
        means, _ = answers.chunk(2, dim=-1)
        return self._bounds.unscaled(means.float().tanh())


def expected_values(logits: Tensor, support: Tensor) -> Tensor:
    """The means (...) float32 of value distributions: Q(s, a) = sum_i z_i p_i(s, a).

    Args:
        logits: (..., atoms).
        support: (atoms,) float32, z.
    """
    return logits.float().softmax(dim=-1) @ support


def of_actions(values: Tensor, actions: Tensor) -> Tensor:
    """Select one action (B,) each out of (B, actions, ...): (B, ...)."""
    return values[torch.arange(len(values), device=values.device), actions]


class Dueling(nn.Module):
    """Q(s, a) = V(s) + A(s, a) - mean_a' A(s, a') (Wang et al., 2016, Eq. 9).

    Each stream has the features of a hidden layer of its own: the first half goes to V, the second
    to A. With distributions the equation holds for the logits of each atom; `width` is the number
    of outputs per action, 1 or the number of atoms.
    """

    def __init__(self, features: int, actions: int, width: int) -> None:
        super().__init__()
        self.state = nn.Linear(features, width)
        self.advantages = nn.Linear(features, actions * width)

    def forward(self, features: Tensor) -> Tensor:
        """(B, 2 * features) to (B, actions * width)."""
        for_state, for_advantages = features.chunk(2, dim=1)
        state = self.state(for_state).unsqueeze(1)
        advantages = self.advantages(for_advantages).unflatten(1, (-1, state.shape[-1]))
        values = state + advantages - advantages.mean(dim=1, keepdim=True)
        return values.flatten(1)  # type: ignore[no-any-return]
