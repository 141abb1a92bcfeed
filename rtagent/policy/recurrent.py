"""Recurrent networks, which carry a state from one inference to the next.

A recurrent network, built in or from a user's factory, is a module with an integer `state_size`. It
is called with a batch of observations (B, *shape), one of states (B, state_size) float32 and, in a
run that has them, one of pending actions. It answers with its head's output, and with the states
(B, state_size) that it leaves. An episode begins with a state of zeros. A module that has `encode`
and `decide`, as `PolicyModule` has, can do most of its work before it is given a state: learners
then encode all frames of a batch at once.
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
    """How many numbers a network's state has; 0 if it is not recurrent."""
    return int(getattr(module, "state_size", 0))


def encoded(module: nn.Module, observations: Tensor) -> Tensor:
    """The part of the work that needs no state: features, or the observations themselves."""
    part: Any = module.encode if encodes(module) else nn.Identity()
    features: Tensor = part(observations)
    return features


def step(
    module: nn.Module, features: Tensor, states: Tensor, pending: tuple[Tensor, ...] = ()
) -> tuple[Tensor, Tensor]:
    """The rest of one inference: the head's output (B, ...), and the states left (B, state_size).

    Args:
        module: recurrent.
        features: result of `encoded`.
        states: (B, state_size).
        pending: the pending actions, in a run that has them.
    """
    rest: Any = module.decide if encodes(module) else module
    answer, left = rest(features, states, *pending)
    return answer, left


class Lstm(nn.Module):
    """An encoder, an LSTM cell behind it, and a hidden layer with ReLU before the head.

    As the network of R2D2 (Kapturowski et al., Recurrent Experience Replay in Distributed
    Reinforcement Learning, ICLR 2019), but given the pending actions instead of the last action.

    Args:
        encoder: from observations and pending actions to features.
        features: number of features.
        actions: number of actions.
        hidden: units of the cell, and of the hidden layer for each stream of the head.
        head: of the network.
        pending: how many numbers the pending actions are.

    Attributes:
        state_size: length of a state, the cell's output and its memory side by side.
        values: cell, hidden layer and head; they compute in float32, for the rounding errors of all
            steps add up in the state.
    """

    def __init__(
        self, encoder: PolicyModule, features: int, actions: int, hidden: int, head: AnyHead,
        pending: int,
    ) -> None:
        super().__init__()
        self._has_pending = pending > 0
        self.encoder = encoder
        self.values = _Memory(features, actions, hidden, head)
        self.state_size = 2 * hidden

    def forward(
        self, observations: Tensor, states: Tensor, pending: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """One inference, see the module."""
        return self.decide(self.encode(observations), states, pending)

    def encode(self, observations: Tensor) -> Tensor:
        """(B, *shape) to features (B, n): the part that needs no pending actions."""
        encode = self.encoder.encode if self._has_pending else self.encoder
        features: Tensor = encode(observations)
        return features

    def decide(
        self, features: Tensor, states: Tensor, pending: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The rest of the network, see `step`."""
        inputs = (self.encoder.decide(features, pending) if self._has_pending else features).float()
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
