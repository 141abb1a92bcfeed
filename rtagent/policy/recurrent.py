"""Recurrent networks: what they see, and what they carry along from one inference to the next.

The contract, for the built-in one and for those of a user's factory: a module with an integer
`state_size`, called with a batch of observations (B, *shape), one of states (B, state_size) float32
and, in a run that has them, one of pending actions; it answers with what its head says, and with
the states (B, state_size) that it leaves. A state of zeros is that of the beginning. One that has
`encode` and `decide`, as `PolicyModule` has them, may do what takes long before it is given its
state: learners then encode all frames of a batch at once.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from rtagent.policy.architectures import PolicyModule
from rtagent.policy.factory import encodes
from rtagent.policy.heads import AnyHead


def state_size_of(module: nn.Module) -> int:
    """Numbers that a network carries along; 0: it is not recurrent."""
    return int(getattr(module, "state_size", 0))


def encoded(module: nn.Module, observations: Tensor) -> Tensor:
    """The part of the work that needs no state: features, or the observations themselves."""
    part: Any = module.encode if encodes(module) else nn.Identity()
    features: Tensor = part(observations)
    return features


def step(
    module: nn.Module, features: Tensor, states: Tensor, pending: tuple[Tensor, ...] = ()
) -> tuple[Tensor, Tensor]:
    """The rest of one inference: what the head says (B, ...), and the states left (B, state_size).

    Args:
        module: recurrent.
        features: of `encoded`.
        states: (B, state_size).
        pending: the pending actions, in a run that has them.
    """
    rest: Any = module.decide if encodes(module) else module
    answer, left = rest(features, states, *pending)
    return answer, left


class Lstm(nn.Module):
    """An encoder, an LSTM cell behind it, and a hidden layer with ReLU before the head.

    As the network of R2D2 (Kapturowski et al., Recurrent Experience Replay in Distributed
    Reinforcement Learning, ICLR 2019), which is given no last action here: pending actions are.

    Args:
        encoder: from observations and what is pending to features.
        features: their number.
        actions: their number.
        hidden: units of the cell, and of the hidden layer for each stream of the head.
        head: what it ends with.
        pending: numbers of the pending actions.

    Attributes:
        state_size: of the cell's output and of its memory, side by side.
        values: cell, hidden layer and head; they compute in float32, for what is carried along adds
            up the rounding of every step.
    """

    def __init__(
        self, encoder: PolicyModule, features: int, actions: int, hidden: int, head: AnyHead,
        pending: int = 0,
    ) -> None:
        super().__init__()
        self._told = pending > 0
        self.encoder = encoder
        self.values = _Memory(features, actions, hidden, head)
        self.state_size = 2 * hidden

    def forward(
        self, observations: Tensor, states: Tensor, pending: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """See the contract above."""
        return self.decide(self.encode(observations), states, pending)

    def encode(self, observations: Tensor) -> Tensor:
        """(B, *shape) to features (B, n): as far as the encoder gets without pending actions."""
        features: Tensor = (self.encoder.encode if self._told else self.encoder)(observations)
        return features

    def decide(
        self, features: Tensor, states: Tensor, pending: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The rest of the way."""
        inputs = (self.encoder.decide(features, pending) if self._told else features).float()
        with torch.autocast(inputs.device.type, enabled=False):
            answer, left = self.values(inputs, states)
        return answer, left


class _Memory(nn.Module):
    def __init__(self, features: int, actions: int, hidden: int, head: AnyHead) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(features, hidden)
        self.hidden = nn.Linear(hidden, head.streams * hidden)
        self.head = head.layer(hidden, actions)

    def forward(self, inputs: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        output, memory = self.cell(inputs, states.chunk(2, dim=1))
        answer = self.head(functional.relu(self.hidden(output)))
        return answer, torch.cat([output, memory], dim=1)
