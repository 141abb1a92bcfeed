"""A network and the flat arrays in which its state travels between processes."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rtagent.policy import networks


class FlatNetwork:
    """A module whose floating point state is read from, and whose gradient goes to, flat arrays.

    The order is that of the weight buffers (`networks.float_state`).

    Args:
        module: its tensors must stay where they are.

    Attributes:
        size: number of values.
    """

    def __init__(self, module: nn.Module) -> None:
        parameters = dict(module.named_parameters(remove_duplicate=False))
        self._pieces: list[tuple[slice, Tensor, nn.Parameter | None]] = []
        at = 0
        for name, tensor in networks.float_state(module):
            part = slice(at, at + tensor.numel())
            self._pieces.append((part, tensor, parameters.get(name)))
            at = part.stop
        self.size = at

    def load(self, values: Tensor) -> None:
        """Copy a flat array (size,) into the module."""
        with torch.no_grad():
            for part, tensor, _ in self._pieces:
                tensor.copy_(values[part].view(tensor.shape))

    def gradient_into(self, out: Tensor, factor: float = 1.0) -> None:
        """Copy the gradient, times a factor, into a flat array (size,): 0 where there is none."""
        for part, tensor, parameter in self._pieces:
            if parameter is None or parameter.grad is None:
                out[part].zero_()
            else:
                torch.mul(parameter.grad, factor, out=out[part].view(tensor.shape))

    def statistics_into(self, out: Tensor) -> None:
        """Copy what is not learned by gradient (a normalisation's averages) into a flat array."""
        for part, tensor, parameter in self._pieces:
            if parameter is None:
                out[part].view(tensor.shape).copy_(tensor)
