"""A second copy of the acting network, filled piece by piece while the first one acts."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from rtagent.errors import UserError, typed_line
from rtagent.memory.array_buffer import Floats
from rtagent.policy.acting import ActingPolicy
from rtagent.policy.networks import float_state

PIECE_VALUES = 65_536
"""Most values of a piece, unless a row of a tensor has more; they take a core 0.1 ms or less."""

Piece = tuple[Tensor, int, int]
"""A part of a tensor, and its place in the flat weights: first value, and one past the last."""


class Standby:
    """A copy of the acting network.

    Args:
        policy: the policy that acts; `swap` exchanges its network and the copy.

    Attributes:
        pieces: number of pieces into which the weights are cut.

    Raises:
        UserError: the network cannot be copied.
    """

    def __init__(self, policy: ActingPolicy) -> None:
        self._policy = policy
        try:
            self._module = copy.deepcopy(policy.module)
        except Exception as error:
            raise UserError(
                f"the policy's network cannot be copied ({typed_line(error)}); let copy.deepcopy "
                "copy what policy.factory builds"
            ) from error
        self._acting, self._idle = list(_pieces(policy.module)), list(_pieces(self._module))
        self.pieces = len(self._idle)

    def warm_up(self) -> None:
        """Run both networks, so that no later call is slower for being the first."""
        for _ in range(2):
            self._policy.warm_up()
            self.swap()

    def fill(self, piece: int, values: Floats) -> None:
        """Copy one piece into the idle network, in its precision and layout.

        Args:
            piece: its number.
            values: (parameters,) float32, all weights.
        """
        tensor, start, stop = self._idle[piece]
        with torch.no_grad():
            tensor.copy_(torch.from_numpy(values[start:stop]).view(tensor.shape))

    def swap(self) -> None:
        """Let the idle network act, and the other one be filled; never inside an inference."""
        self._policy.module, self._module = self._module, self._policy.module
        self._acting, self._idle = self._idle, self._acting


def _pieces(module: nn.Module) -> Iterator[Piece]:
    """The module's floating point state in the order of the weight buffers, cut along rows."""
    start = 0
    for _, tensor in float_state(module):
        rows = tensor if tensor.dim() else tensor.view(1)
        length = max(1, rows[0].numel()) if len(rows) else 1
        step = max(1, PIECE_VALUES // length)
        for first in range(0, len(rows), step):
            part = rows[first : first + step]
            yield part, start, start + part.numel()
            start += part.numel()
