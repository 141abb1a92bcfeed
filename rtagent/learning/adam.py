"""Adam on flat arrays that several processes share."""

from __future__ import annotations

import ctypes
import math

import torch
from torch import Tensor

from rtagent.memory.compiled import compiled
from rtagent.memory.learner_state import Arrays

BETA1 = 0.9
BETA2 = 0.999
EPSILON = 1e-8
_ADAM = compiled("rtagent_adam")


class _Copy(ctypes.Structure):
    """`struct copy` of `adam.c`."""

    _fields_ = tuple((name, ctypes.c_void_p) for name in ("weights", "mean", "square"))


class _Job(ctypes.Structure):
    """`struct job` of `adam.c`."""

    _fields_ = (
        ("old", _Copy), ("new", _Copy), ("gradient", ctypes.c_void_p), ("count", ctypes.c_int64),
        *((name, ctypes.c_float) for name in (
            "mean_share", "square_kept", "square_share", "rate", "root", "epsilon",
        )),
    )


class FlatAdam:
    """Steps of Adam (Kingma and Ba, 2015) from one copy of the shared state to the other.

    The number of steps is given with every step, for other processes make steps in between.

    Args:
        arrays: weights and moments of a copy; they are written.
        part: the values that are updated.
    """

    def __init__(self, arrays: Arrays, part: slice) -> None:
        self._arrays = [each[part] for each in tensors(arrays)]
        self._steps = torch.zeros(())

    def copy(self, old: FlatAdam) -> None:
        """Take over the values of another copy."""
        for mine, theirs in zip(self._arrays, old._arrays, strict=True):
            mine.copy_(theirs)

    def step(
        self, old: FlatAdam, gradient: Tensor, steps_before: int, learning_rate: float
    ) -> None:
        """Write the result of one step from another copy into this copy.

        Args:
            old: the other copy, which stays as it is.
            gradient: of the part, float32.
            steps_before: t - 1, the number of steps in the other copy's moments.
            learning_rate: alpha.
        """
        if _ADAM is None:
            self._step_by_torch(old, gradient, steps_before, learning_rate)
            return
        steps = steps_before + 1
        job = _Job(
            old._addresses(), self._addresses(), gradient.data_ptr(), gradient.numel(), 1.0 - BETA1,
            BETA2, 1.0 - BETA2, learning_rate / (1.0 - BETA1**steps),
            1.0 / math.sqrt(1.0 - BETA2**steps), EPSILON,
        )
        _ADAM(ctypes.addressof(job))

    def _step_by_torch(
        self, old: FlatAdam, gradient: Tensor, steps_before: int, learning_rate: float
    ) -> None:
        self.copy(old)
        adam_(self._arrays, gradient, self._steps.fill_(steps_before + 1), learning_rate)

    def _addresses(self) -> _Copy:
        return _Copy(*(each.data_ptr() for each in self._arrays))


def tensors(arrays: Arrays) -> list[Tensor]:
    """Weights and moments in the host's memory, as tensors."""
    return [torch.from_numpy(each) for each in (arrays.weights, arrays.mean, arrays.square)]


def adam_(arrays: list[Tensor], gradient: Tensor, steps: Tensor, learning_rate: float) -> None:
    """One step of Adam, in place, on any device.

    Args:
        arrays: weights and the running means of the gradient and of its square, each (n,) float32.
        gradient: (n,) float32.
        steps: () float32, t: the number of steps, this one included.
        learning_rate: alpha.
    """
    weights, mean, square = arrays
    # The kernel behind torch.optim.Adam(fused=True). The class around it would import torch's
    # compiler, some 80 MB in every process.
    torch._fused_adam_(
        [weights], [gradient], [mean], [square], [], [steps], lr=learning_rate, beta1=BETA1,
        beta2=BETA2, weight_decay=0.0, eps=EPSILON, amsgrad=False, maximize=False,
    )


def clip_(gradient: Tensor, norm: float, limit: float) -> None:
    """Scale a gradient (n,) of a norm down to a largest norm, in place; 0: no limit."""
    if 0.0 < limit < norm < float("inf"):
        gradient.mul_(limit / norm)
