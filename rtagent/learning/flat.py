"""A network and the flat arrays in which its state travels between processes."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rtagent.policy import networks


class FlatNetwork:
    """Copies floating point state into a module, and its gradient out, as flat arrays.

    The order of the values is that of the weight buffers (`networks.float_state`).

    Args:
        module: its tensors must stay where they are.

    Attributes:
        size: number of values.
    """

    def __init__(self, module: nn.Module) -> None:
        learned = {
            name: each for name, each in module.named_parameters(remove_duplicate=False)
            if each.requires_grad
        }
        state = list(networks.float_state(module))
        self._tensors = [tensor for _, tensor in state]
        self._parameters = [learned.get(name) for name, _ in state]
        self._has_unlearned = None in self._parameters
        self._sizes = [tensor.numel() for tensor in self._tensors]
        self.size = sum(self._sizes)

    def load(self, values: Tensor) -> None:
        """Copy a flat array (size,) into the module."""
        with torch.no_grad():
            torch._foreach_copy_(self._tensors, self._pieces(values))

    def gradient_into(self, out: Tensor, factor: float) -> None:
        """Copy the gradient, times a factor, into a flat array (size,): 0 where there is none."""
        filled, gradients = [], []
        for piece, parameter in zip(self._pieces(out), self._parameters, strict=True):
            if parameter is None or parameter.grad is None:
                piece.zero_()
            else:
                filled.append(piece)
                # Those of an embedding may be sparse.
                gradients.append(parameter.grad.to_dense())
        if filled:
            # In one call: most pieces are so small that each call would cost more than the copy.
            torch._foreach_copy_(filled, gradients)
        if factor != 1.0:
            out.mul_(factor)

    def unlearned_into(self, out: Tensor) -> None:
        """Copy state that does not learn, as averages of a normalisation, into a flat array."""
        if not self._has_unlearned:
            return
        pieces = zip(self._pieces(out), self._tensors, self._parameters, strict=True)
        for piece, tensor, parameter in pieces:
            if parameter is None:
                piece.copy_(tensor)

    def _pieces(self, flat: Tensor) -> list[Tensor]:
        """Views of a flat array in the shapes of the module's tensors."""
        pieces = torch.split(flat, self._sizes)
        return [piece.view(each.shape) for piece, each in zip(pieces, self._tensors, strict=True)]
