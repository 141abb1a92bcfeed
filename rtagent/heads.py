"""Heads: what the last layers of a network say about each action, and which value that means.

A plain head gives one value per action. A dueling head sums a value of the state and advantages of
the actions. A distributional head gives, per action, the logits of a distribution over fixed
returns. The last two combine.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Support:
    """The returns over which a distribution is learned (Bellemare et al., 2017).

    Attributes:
        atoms: their number, at least 2.
        v_min: the smallest.
        v_max: the largest.
    """

    atoms: int
    v_min: float
    v_max: float

    def values(self) -> Tensor:
        """(atoms,) float32, z_i = v_min + i (v_max - v_min) / (atoms - 1)."""
        return torch.linspace(self.v_min, self.v_max, self.atoms)


@dataclass(frozen=True)
class Head:
    """The kind of head.

    Attributes:
        dueling: separate streams for the state's value and the actions' advantages.
        support: of the value distributions; none: plain values.
    """

    dueling: bool = False
    support: Support | None = None

    @property
    def streams(self) -> int:
        """How many times as many features the head takes as one stream has."""
        return 2 if self.dueling else 1

    def layer(self, features: int, actions: int) -> nn.Module:
        """The last layer.

        Args:
            features: of one stream.
            actions: number of actions.

        Returns:
            A module from (B, streams * features) to (B, *output_shape(actions)).
        """
        width = 1 if self.support is None else self.support.atoms
        last: nn.Module = (
            Dueling(features, actions, width)
            if self.dueling
            else nn.Linear(features, actions * width)
        )
        if self.support is None:
            return last
        return nn.Sequential(last, nn.Unflatten(1, (actions, width)))

    def output_shape(self, actions: int) -> tuple[int, ...]:
        """Shape of the answer to one observation: (actions,), or (actions, atoms) of logits."""
        return (actions,) if self.support is None else (actions, self.support.atoms)

    def describe(self) -> str:
        """What to add to a network's name, for display and for checkpoints; empty if plain."""
        text = ", dueling" if self.dueling else ""
        if self.support is not None:
            low, high = self.support.v_min, self.support.v_max
            text += f", c51 of {self.support.atoms} atoms from {low:.15g} to {high:.15g}"
        return text


PLAIN = Head()


def expected_values(logits: Tensor, support: Tensor) -> Tensor:
    """The means of value distributions: Q(s, a) = sum_i z_i p_i(s, a).

    Args:
        logits: (..., atoms).
        support: (atoms,) float32, z.

    Returns:
        (...) float32.
    """
    return logits.float().softmax(dim=-1) @ support


class Dueling(nn.Module):
    """Q(s, a) = V(s) + A(s, a) - mean_a' A(s, a') (Wang et al., 2016, Eq. 9).

    Each stream has the features of a hidden layer of its own: the first half goes to V, the second
    to A. With distributions the equation holds for the logits of each atom.

    Args:
        features: of one stream.
        actions: number of actions.
        width: outputs per action.
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
