"""A policy network as a function of an observation and of its weights.

An engine translates the function once; the weights of each publication are put in afterwards.
"""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from rtagent.memory.array_buffer import Floats
from rtagent.policy.heads import expected_values
from rtagent.policy.networks import float_state
from rtagent.policy.transformer import plain_attention


class Traceable(nn.Module):
    """A network whose floating point state is an argument.

    Args:
        module: the network, in float32; it is copied.
        example: an observation, (stack, ...).
        support: of the value distributions. If None, the network gives plain values or an action.

    Attributes:
        example: the observation as a batch, (1, stack, ...).
        names: of the tensors, in the order of the weight buffers.
    """

    def __init__(
        self, module: nn.Module, example: npt.NDArray[Any], support: Tensor | None
    ) -> None:
        super().__init__()
        # In a tuple, so that torch does not take its parameters for this module's own.
        self._held = (copy.deepcopy(module).eval().requires_grad_(False),)
        self._support = support
        self.example = torch.from_numpy(np.ascontiguousarray(example)).unsqueeze(0)
        state = list(float_state(module))
        self.names = [name for name, _ in state]
        self._shapes = [tuple(tensor.shape) for _, tensor in state]

    def forward(self, observations: Tensor, *weights: Tensor) -> Tensor:
        """The answer (1, actions) to an observation (1, stack, ...), with these tensors."""
        module = self._held[0]
        for name, weight in zip(self.names, weights, strict=True):
            path, _, leaf = name.rpartition(".")
            owner = module.get_submodule(path)
            state: dict[str, Any] = (
                owner._parameters if leaf in owner._parameters else owner._buffers
            )
            state[leaf] = weight
        output: Tensor = module(observations)
        return output if self._support is None else expected_values(output, self._support)

    def split(self, values: Floats) -> Iterator[Floats]:
        """Views of (parameters,) float32 as the tensors, in the order of `names`."""
        at = 0
        for shape in self._shapes:
            size = int(np.prod(shape, dtype=np.int64))
            yield values[at : at + size].reshape(shape)
            at += size

    def weights(self) -> tuple[Tensor, ...]:
        """Random tensors of the right shapes, with which the network is translated."""
        generator = torch.Generator().manual_seed(0)
        return tuple(torch.randn(shape, generator=generator) for shape in self._shapes)


@contextmanager
def translating() -> Iterator[None]:
    """Without gradients, warnings, and layers that no engine knows."""
    root = logging.getLogger()
    level, filters = root.level, list(root.filters)
    try:
        with torch.no_grad(), plain_attention(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        # OpenVINO leaves loggers as it needs them where it fails: no warning would be heard.
        root.setLevel(level)
        root.filters[:] = filters
