"""The max pooling of the residual network, compiled for bfloat16 on a CPU.

torch compares bfloat16 one by one, and remembers in 64 bits which value each window took.
`pooling.c` compares a register of channels at once and remembers it in 16 bits. The values are the
same; where a value is the largest of several windows, their gradients are added in float32 and
rounded once, where torch rounds after each. Other inputs are left to torch, and so is everything
where nothing was compiled.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from rtagent.memory.compiled import Function, compiled

SIDE, STRIDE = 3, 2
CHANNELS = 16
"""The compiled functions take multiples of so many channels: one or two registers."""
_FORWARD, _BACKWARD = compiled("rtagent_max_pool"), compiled("rtagent_max_pool_backward")


class MaxPool(nn.MaxPool2d):
    """Windows of 3 x 3, two apart, without padding."""

    def __init__(self) -> None:
        super().__init__(SIDE, STRIDE)

    def forward(self, inputs: Tensor) -> Tensor:
        """(B, C, height, width) to (B, C, (height - 1) // 2, (width - 1) // 2)."""
        if _FORWARD is None or not _fits(inputs):
            return super().forward(inputs)  # type: ignore[no-any-return]
        return _Compiled.apply(inputs)  # type: ignore[no-any-return,no-untyped-call]


def _fits(inputs: Tensor) -> bool:
    return (
        inputs.dtype == torch.bfloat16 and inputs.device.type == "cpu" and inputs.ndim == 4
        and inputs.shape[1] % CHANNELS == 0 and min(inputs.shape[2:]) >= SIDE
        and inputs.is_contiguous(memory_format=torch.channels_last)
    )


class _Job(ctypes.Structure):
    """`struct job` of `pooling.c`."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("whole", "pooled", "chosen")),
        *((name, ctypes.c_int64) for name in ("images", "height", "width", "channels")),
    )


def _run(function: Function | None, whole: Tensor, pooled: Tensor, chosen: Tensor) -> None:
    assert function is not None
    images, channels, height, width = whole.shape
    tensors = (whole.data_ptr(), pooled.data_ptr(), chosen.data_ptr())
    job = _Job(*tensors, images, height, width, channels)
    function(ctypes.addressof(job))


class _Compiled(torch.autograd.Function):
    """Max pooling by the compiled functions, channels last."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor) -> Tensor:
        images, channels, *sides = inputs.shape
        shape = images, channels, *((side - 1) // STRIDE for side in sides)
        pooled, chosen = (
            torch.empty(shape, dtype=dtype, memory_format=torch.channels_last)
            for dtype in (inputs.dtype, torch.int16)
        )
        _run(_FORWARD, inputs, pooled, chosen)
        ctx.save_for_backward(chosen)
        ctx.shape = inputs.shape
        return pooled

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (chosen,) = ctx.saved_tensors
        gradient = gradient.contiguous(memory_format=torch.channels_last)
        whole = torch.empty(ctx.shape, dtype=gradient.dtype, memory_format=torch.channels_last)
        _run(_BACKWARD, whole, gradient, chosen)
        return whole
