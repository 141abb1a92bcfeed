"""The precision in which torch acts: bfloat16 where it is measured to be faster, else float32.

float16 is not offered: most processors compute it far more slowly.
"""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable
from typing import Literal

import torch
from torch import nn

from rtagent.config import PolicyConfig
from rtagent.policy.architectures import ResNet, channels_last
from rtagent.policy.inputs import Inputs

ActingPrecision = Literal["float32", "bfloat16"]

WORTH = 0.9
"""bfloat16 is taken if it needs at most this share of the time of float32."""
ROUNDS = 5


def acting_precision(
    policy: PolicyConfig, network: nn.Module, inputs: Inputs,
    now: Callable[[], float] = time.thread_time,
) -> ActingPrecision:
    """The precision of a network that acts.

    Args:
        policy: its precision decides, unless it is `auto`, or `int8`, which only engines have. Then
            the resnet is measured, and every other network acts in float32, as do all on a GPU:
            what is faster on the CPU need not be faster there, nor possible.
        network: in float32, on the CPU.
        inputs: a batch of one.
        now: time in seconds; by default CPU time of the thread, which other processes do not
            lengthen.
    """
    if policy.precision == "bfloat16":
        return "bfloat16"
    if policy.precision == "float32" or policy.device != "cpu" or not isinstance(network, ResNet):
        return "float32"
    full = channels_last(copy.deepcopy(network))
    low = channels_last(copy.deepcopy(network).to(torch.bfloat16))
    low.values.float()
    return faster(lambda: full(*inputs), lambda: low(*inputs), now)


def faster(
    full: Callable[[], object], low: Callable[[], object], now: Callable[[], float]
) -> ActingPrecision:
    """Compare the medians of calls that take turns.

    Args:
        full: a forward pass in float32.
        low: the same in bfloat16.
        now: time in seconds.
    """

    def timed(call: Callable[[], object]) -> float:
        began = now()
        call()
        return now() - began

    with torch.inference_mode():
        # The first calls are slower.
        timed(full), timed(low)
        seconds = [(timed(full), timed(low)) for _ in range(ROUNDS)]
    full_s, low_s = (statistics.median(times) for times in zip(*seconds, strict=True))
    return "bfloat16" if low_s <= WORTH * full_s else "float32"
