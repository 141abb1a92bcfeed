"""Pixels as a convolution takes them: channels last, in its precision, scaled.

torch makes three passes over them. For bfloat16 on a CPU the compiled function makes one, and looks
each byte up in a table of torch's 256 results, so the numbers are the same to the last bit.
Everything else is left to torch.
"""

from __future__ import annotations

import ctypes
from functools import cache

import torch
from torch import Tensor

from rtagent.memory.compiled import compiled

_PIXELS = compiled("rtagent_pixels")


class _Job(ctypes.Structure):
    """`struct job` of `pixels.c`."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("planes", "pixels", "numbers")),
        *((name, ctypes.c_int64) for name in ("images", "channels", "area")),
    )


def laid_out(pictures: Tensor, dtype: torch.dtype, scale: float) -> Tensor:
    """Convert (B, C, height, width) to a type, times a scale, channels last."""
    if _PIXELS is None or not _fits(pictures, dtype):
        return scaled(pictures.contiguous(memory_format=torch.channels_last), dtype, scale)
    images, channels, *sides = pictures.shape
    found = torch.empty(pictures.shape, dtype=dtype, memory_format=torch.channels_last)
    numbers = _numbers(dtype, scale)
    places = (each.data_ptr() for each in (pictures, found, numbers))
    job = _Job(*places, images, channels, sides[0] * sides[1])
    _PIXELS(ctypes.addressof(job))
    return found


def scaled(numbers: Tensor, dtype: torch.dtype, scale: float) -> Tensor:
    """Convert numbers to a type, times a scale; those beyond float16 become its largest."""
    if dtype == torch.float16 and numbers.dtype != torch.uint8:
        limit = torch.finfo(dtype).max
        numbers = numbers.clamp(-limit, limit)
    numbers = numbers.to(dtype)
    return numbers if scale == 1.0 else numbers * scale


@cache
def _numbers(dtype: torch.dtype, scale: float) -> Tensor:
    return scaled(torch.arange(256, dtype=torch.uint8), dtype, scale)


def _fits(pictures: Tensor, dtype: torch.dtype) -> bool:
    return (
        pictures.dtype == torch.uint8 and dtype == torch.bfloat16
        and pictures.device.type == "cpu" and pictures.ndim == 4 and pictures.is_contiguous()
    )
