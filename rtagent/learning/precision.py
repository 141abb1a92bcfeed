"""Precision of a learner's passes: mixed precision, the loss scale, and which precision is fastest.

Weights, optimizer, head, target and loss are float32 in every precision. Within `computing` each
convolution and each matrix product is given a copy of its weights in the lower precision, and its
backward pass runs in the precision of its forward pass; the gradient arrives as float32 at the
master weights. In float16 small gradients would become 0, so the loss is multiplied by a scale
that follows overflows (Micikevicius et al., ICLR 2018; AP-DRL, Algorithm 1 and Fig. 9).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import nn

from rtagent.config import LEARNING_PRECISIONS, Precision
from rtagent.memory.learner_state import FIRST_EXPONENT

LEAST_EXPONENT, MOST_EXPONENT = -24, 24
"""Below 0 where gradients of large returns overflow as they are."""
STABLE_UPDATES = 2000
"""Updates without overflow after which the loss scale is doubled."""
SHORT_S = 0.001
"""An update that is done in so long is mostly overhead, which a lower precision only adds to."""
LONG_S = 0.3
"""Larger batches than one that takes so long are not measured."""
WORTH = 0.9
"""A lower precision has to take at most this share of the time of float32."""
SLOW = 8.0
"""A precision that takes so many times as long for a small layer is not tried on the network."""
ROUNDS = 3
PROCESSOR = torch.device("cpu")


def computing(
    precision: Precision, device: torch.device = PROCESSOR, *, keeps: bool = True
) -> AbstractContextManager[object]:
    """Within it, passes through networks with float32 weights run in a precision.

    Args:
        precision: of the passes.
        device: where they run.
        keeps: cast weights are kept until the end, for the next pass. False without gradient:
            before torch 2.10 all threads share what is kept, and a pass with gradient that is
            given such a copy is cut off from its weights.
    """
    low = precision != "float32"
    dtype = getattr(torch, precision) if low else None
    return torch.autocast(device.type, dtype, enabled=low, cache_enabled=keeps)


def has_convolutions(network: nn.Module) -> bool:
    """Whether a network has convolutions."""
    return any(isinstance(module, nn.Conv2d) for module in network.modules())


# ---- the loss scale


@dataclass(frozen=True)
class LossScale:
    """What losses are multiplied by: a power of 2, so that it changes no digit of a gradient.

    Attributes:
        exponent: of 2.
        stable: updates since it changed.
    """

    exponent: int = FIRST_EXPONENT
    stable: int = 0

    @property
    def value(self) -> float:
        """2**exponent."""
        return 2.0**self.exponent

    def after(self, *, overflowed: bool) -> LossScale:
        """The next one: half after an overflow, twice when updates have been stable for long."""
        if overflowed:
            return LossScale(max(LEAST_EXPONENT, self.exponent - 1))
        if self.stable + 1 < STABLE_UPDATES:
            return LossScale(self.exponent, self.stable + 1)
        return LossScale(min(MOST_EXPONENT, self.exponent + 1))


# ---- which is fastest


@dataclass(frozen=True)
class Measured:
    """How long an update takes in each precision.

    Attributes:
        chosen: the fastest; float32 where a lower one gains little.
        batch_size: measured with.
        seconds: of an update. What was not worth trying is missing.
    """

    chosen: Precision
    batch_size: int
    seconds: dict[Precision, float]


def fastest(
    run: Callable[[Precision, int], object], batch_size: int, *, convolves: bool,
    now: Callable[[], float] = time.thread_time, usable: Callable[..., bool] | None = None,
) -> Measured:
    """Measure which precision is the fastest on this machine.

    Args:
        run: computes the gradient of a batch of a size in a precision.
        batch_size: of the updates to come; a smaller one is measured if these take long.
        convolves: whether the network has convolutions.
        now: time in seconds. The thread's own time does not count what other processes take.
        usable: of a precision and `convolves`, whether it is worth trying; `is_usable` by default.
    """

    def timed(precision: Precision, size: int) -> float:
        began = now()
        run(precision, size)
        return now() - began

    size = 0
    while size < batch_size:
        size = min(batch_size, 8 * size or 1)
        timed("float32", size)  # The first call is slower.
        full_s = timed("float32", size)
        if full_s > LONG_S:
            break
    if full_s < SHORT_S:
        return Measured("float32", size, {"float32": full_s})
    usable = usable or is_usable
    tried: list[Precision] = ["float32"]
    tried += [each for each in LEARNING_PRECISIONS[1:] if usable(each, convolves=convolves)]
    for each in tried[1:]:
        timed(each, size)
    times = [{each: timed(each, size) for each in tried} for _ in range(ROUNDS)]
    seconds = {each: statistics.median(spent[each] for spent in times) for each in tried}
    best = min(tried, key=lambda each: seconds[each])
    if seconds[best] > WORTH * seconds["float32"]:
        best = "float32"
    return Measured(best, size, seconds)


def is_usable(
    precision: Precision, *, convolves: bool, now: Callable[[], float] = time.thread_time,
    device: torch.device = PROCESSOR,
) -> bool:
    """Whether this machine computes a small layer in a precision in anything like the usual time.

    Where torch has no kernel of a precision, it takes hundreds of times as long, and measuring a
    whole network would take minutes.
    """
    inputs = torch.ones(1, 4096, device=device)
    layer: nn.Module = nn.Linear(4096, 64)
    if convolves:
        layer = nn.Sequential(nn.Unflatten(1, (16, 16, 16)), nn.Conv2d(16, 16, 3, padding=1))

    layer = layer.to(device)

    def spent(each: Precision) -> float:
        began = now()
        with computing(each, device):
            outputs = layer(inputs)
        outputs.float().sum().backward()
        return now() - began

    first = {each: spent(each) for each in ("float32", precision)}
    return min(first[precision], spent(precision)) <= SLOW * min(first["float32"], spent("float32"))
