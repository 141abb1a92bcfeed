"""Adam on flat arrays that several processes share."""

from __future__ import annotations

import torch
from torch import Tensor

from rtagent.memory.learner_state import Arrays

BETA1 = 0.9
BETA2 = 0.999
EPSILON = 1e-8
EVERYTHING = slice(None)


class FlatAdam:
    """Steps of Adam (Kingma and Ba, 2015) on one copy of the shared state, in place.

    Only the count of steps lies outside the arrays, and is given with every step: between two
    steps of this object other processes may have made theirs.

    Args:
        arrays: weights and moments; they are changed in place.
        part: which values are stepped; all if not given.
    """

    def __init__(self, arrays: Arrays, part: slice = EVERYTHING) -> None:
        self._weights = torch.from_numpy(arrays.weights[part])
        self._mean = torch.from_numpy(arrays.mean[part])
        self._square = torch.from_numpy(arrays.square[part])
        self._steps = torch.zeros(())

    def step(self, gradient: Tensor, steps_before: int, learning_rate: float) -> None:
        """One step by the gradient of the part, float32; t - 1 steps lie behind the moments."""
        # The kernel behind torch.optim.Adam(fused=True): one pass over the memory instead of
        # seven. The class around it would import torch's compiler, some 80 MB in every process.
        torch._fused_adam_(
            [self._weights], [gradient], [self._mean], [self._square], [],
            [self._steps.fill_(steps_before + 1)], lr=learning_rate, beta1=BETA1, beta2=BETA2,
            weight_decay=0.0, eps=EPSILON, amsgrad=False, maximize=False,
        )


def clip_(gradient: Tensor, limit: float) -> float:
    """Scale a gradient (n,) down to a largest norm, in place; 0: no limit.

    Returns:
        The norm before; not finite if any value is not.
    """
    norm = float(torch.linalg.vector_norm(gradient))
    if 0.0 < limit < norm < float("inf"):
        gradient.mul_(limit / norm)
    return norm
