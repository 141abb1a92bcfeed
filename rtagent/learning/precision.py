"""In which precision a learner computes: bfloat16 where that is faster."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from rtagent.config import LearningConfig


def uses_bfloat16(network: nn.Module, learning: LearningConfig) -> bool:
    """Whether passes through the network run in bfloat16, over float32 weights."""
    # Without convolutions bfloat16 gains no time, and it costs precision.
    convolves = any(isinstance(module, nn.Conv2d) for module in network.modules())
    return learning.precision == "bfloat16" or (
        learning.precision == "auto" and convolves and has_fast_bfloat16()
    )


def has_fast_bfloat16(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether the processor multiplies bfloat16 itself (x86 and Arm flags)."""
    try:
        words = set(cpuinfo.read_text().split())
    except OSError:
        return False
    return bool(words & {"avx512_bf16", "amx_bf16", "bf16", "svebf16"})
