"""The network as an inference process holds it: one observation at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from torch import Tensor

from rtagent.config import Config, PolicyConfig
from rtagent.memory.array_buffer import Floats
from rtagent.memory.blueprint import Blueprint
from rtagent.policy.architectures import PolicyModule, channels_last
from rtagent.policy.device import usable_device
from rtagent.policy.factory import encodes
from rtagent.policy.heads import PLAIN, Head, OutputHead, expected_values
from rtagent.policy.inputs import input_space, zeros
from rtagent.policy.networks import build, head_of, load_flat, mean_of
from rtagent.policy.precision import ActingPrecision
from rtagent.policy.recurrent import Lstm, encoded, state_size_of, step


class ActingPolicy:
    """A network made ready to answer one observation at a time.

    Args:
        policy: network and device.
        observation_space: Box of a stacked observation, or as `inputs.py` says.
        action_space: Discrete, or a flat Box with bounds.
        head: of the network that learns.
        precision: of the weights, see `acting_precision`.

    Attributes:
        state: (state_size,) with which the next inference of a recurrent network begins; after an
            inference, the state that it has left.

    Raises:
        UserError: as `build`, or the device is not there.
    """

    def __init__(
        self, policy: PolicyConfig, observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any], head: OutputHead = PLAIN,
        precision: ActingPrecision = "float32",
    ) -> None:
        self.device = usable_device(policy.device, "policy.device")
        dtype = getattr(torch, precision)
        module = build(policy, observation_space, action_space, head).eval().requires_grad_(False)
        self.module = channels_last(module.to(self.device, dtype))
        if isinstance(self.module, (PolicyModule, Lstm)):
            self.module.values.float()
        self.state_size = state_size_of(module)
        self.forget()
        support = head.support if isinstance(head, Head) else None
        self._support = None if support is None else support.values().to(self.device)
        self._mean = mean_of(head)
        blank, *pending = zeros(observation_space, 1)
        self._blank = blank[0]
        self._nothing_pending = torch.from_numpy(pending[0]) if pending else None

    @classmethod
    def of(
        cls, config: Config, blueprint: Blueprint, precision: ActingPrecision | None = None
    ) -> ActingPolicy:
        """The policy of a run; without a precision, in the one that the run acts in."""
        return cls(
            config.policy, input_space(blueprint), blueprint.action_space,
            head_of(config.learning, blueprint.action_space), precision or blueprint.precision,
        )

    def load(self, values: Floats) -> None:
        """Take over published weights, (parameters,) float32, in place."""
        load_flat(self.module, values)

    def warm_up(self) -> None:
        """Call the network: its first call takes up to seven times as long as later ones."""
        for _ in range(3):
            self.values(self._blank)
        self.forget()

    def forget(self) -> None:
        """Begin anew, as at the start of an episode."""
        self.state: Floats = np.zeros(self.state_size, np.float32)

    def values(
        self, observation: npt.NDArray[Any], pending: Callable[[], Floats] | None = None
    ) -> Floats:
        """The network's answer to one observation, as an explorer takes it.

        Args:
            observation: (stack, ...) uint8 or float32.
            pending: gives the pending actions, (1, width), in a run that has them; called once, as
                late as the network allows. If None, there are none.

        Returns:
            (actions,) float32 values, the expected ones where the network gives distributions; of
            an actor, the (n,) components of its action, or (2 n,), see `GaussianHead`.
        """
        with torch.inference_mode():
            inputs = torch.from_numpy(observation).unsqueeze(0).to(self.device)
            output = self._answer(inputs, pending)[0]
            if self._support is not None:
                output = expected_values(output, self._support)
            answer: Floats = output.float().cpu().numpy()
        return answer

    def _answer(self, inputs: Tensor, ask: Callable[[], Floats] | None) -> Tensor:
        module: Any = self.module
        if self._nothing_pending is None and not self.state_size:
            return module(inputs)  # type: ignore[no-any-return]
        features = encoded(module, inputs)
        pending: tuple[Tensor, ...] = ()
        if self._nothing_pending is not None:
            pending = (self._asked(ask).to(self.device),)
        if self.state_size:
            states = torch.from_numpy(self.state)[None].to(self.device)
            answer, left = step(module, features, states, pending)
            self.state = left[0].float().cpu().numpy()
            return answer
        rest = module.decide if encodes(module) else module
        return rest(features, *pending)  # type: ignore[no-any-return]

    def _asked(self, ask: Callable[[], Floats] | None) -> Tensor:
        """The pending actions, (1, width)."""
        if ask is None:
            assert self._nothing_pending is not None
            return self._nothing_pending
        # The caller may wait and look up actions, which is no part of the inference.
        with torch.inference_mode(False):
            return torch.from_numpy(ask())

    def greedy(self, observation: npt.NDArray[Any]) -> Floats:
        """The answer of `values`; its mean (n,) for a random actor, the first one of a chunk."""
        answer = self.values(observation)
        # In a world that waits for each action, only the first one is used.
        answer = answer[0] if answer.ndim == 2 else answer
        if self._mean is None:
            return answer
        action: Floats = self._mean(torch.from_numpy(answer)[None])[0].numpy()
        return action
