"""Precision of a learner's passes: mixed precision, the loss scale, and which precision is fastest.

Weights, optimizer, head, target and loss are float32 in every precision. Within `computing` each
convolution and each matrix product uses a copy of its weights in the lower precision, and its
backward pass runs in the precision of its forward pass; the gradient of the float32 weights is
float32. In float16 small gradients would become 0, so the loss is multiplied by a scale that is
adapted to overflows (Micikevicius et al., ICLR 2018; AP-DRL, Algorithm 1 and Fig. 9).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import nn

from rtagent.config import LEARNING_PRECISIONS, Precision
from rtagent.memory.learner_state import FIRST_EXPONENT

LEAST_EXPONENT, MOST_EXPONENT = -24, 24
"""Bounds of the loss scale's exponent; below 0 for gradients of large returns that overflow even
without a scale."""
STABLE_UPDATES = 2000
"""Updates without overflow after which the loss scale is doubled."""
SHORT_S = 0.001
"""An update that takes less is mostly overhead, and a lower precision only adds to that."""
LONG_S = 0.3
"""No batch is measured that is larger than one that takes so long."""
WORTH = 0.9
"""A lower precision is chosen if it takes at most this share of the time of float32."""
SLOW = 8.0
"""A precision that takes so many times as long for a small layer is not tried on the network."""
ROUNDS = 3
SURE_S = 0.5
"""What the first rounds say of a lower precision is confirmed by rounds of so long: beside other
programs an update may take twice as long as the next one, and three rounds would often mistake that
for a difference between precisions."""
PROCESSOR = torch.device("cpu")


def computing(
    precision: Precision, device: torch.device = PROCESSOR, *, keeps: bool = True
) -> AbstractContextManager[object]:
    """A context in which passes through networks with float32 weights run in a precision.

    Args:
        precision: of the passes.
        device: where they run.
        keeps: whether cast weights are kept for the next pass within the context. False for
            passes without gradient: before torch 2.10 all threads share what is kept, and a pass
            with gradient that is given such a copy leaves no gradient in its weights.
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
    """The factor of losses: a power of 2, so that scaling rounds nothing.

    Attributes:
        exponent: the scale is 2**exponent.
        stable: updates since the scale changed.
    """

    exponent: int = FIRST_EXPONENT
    stable: int = 0

    @property
    def value(self) -> float:
        """2**exponent."""
        return 2.0**self.exponent

    def after(self, *, overflowed: bool) -> LossScale:
        """The scale after an update: halved by an overflow, doubled by `STABLE_UPDATES` without."""
        if overflowed:
            return LossScale(max(LEAST_EXPONENT, self.exponent - 1))
        if self.stable + 1 < STABLE_UPDATES:
            return LossScale(self.exponent, self.stable + 1)
        return LossScale(min(MOST_EXPONENT, self.exponent + 1))


# ---- which is fastest


@dataclass(frozen=True)
class PrecisionTimes:
    """How long an update takes in each precision.

    Attributes:
        chosen: the fastest; float32 if a lower one gains little.
        batch_size: of the updates that were measured.
        seconds: of an update, for each precision that was tried.
    """

    chosen: Precision
    batch_size: int
    seconds: dict[Precision, float]


def fastest(
    run: Callable[[Precision, int], object], batch_size: int, *, now: Callable[[], float],
    usable: Callable[[Precision], bool], warm_ups: int = 1,
) -> PrecisionTimes:
    """Measure which precision is the fastest on this machine.

    Args:
        run: computes the gradient of a batch of a size in a precision.
        batch_size: of the updates to come; a smaller one is measured if these take long.
        now: time in seconds.
        usable: whether a precision is worth trying.
        warm_ups: calls of each kind that are slower than all later ones.
    """

    def warm_up(precision: Precision, size: int) -> None:
        for _ in range(warm_ups):
            run(precision, size)

    def timed(precision: Precision, size: int) -> float:
        began = now()
        run(precision, size)
        return now() - began

    size = 0
    while size < batch_size:
        size = min(batch_size, 8 * size or 1)
        warm_up("float32", size)
        full_s = timed("float32", size)
        if full_s > LONG_S:
            break
    if full_s < SHORT_S:
        return PrecisionTimes("float32", size, {"float32": full_s})
    tried: list[Precision] = ["float32"]
    tried += [each for each in LEARNING_PRECISIONS[1:] if usable(each)]
    for each in tried[1:]:
        warm_up(each, size)
    times = [{each: timed(each, size) for each in tried} for _ in range(ROUNDS)]
    if _compared(times)[0] != "float32":
        began = now()
        while now() - began < SURE_S:
            times.append({each: timed(each, size) for each in tried})
    best, seconds = _compared(times)
    return PrecisionTimes(best, size, seconds)


def _compared(
    times: Sequence[dict[Precision, float]],
) -> tuple[Precision, dict[Precision, float]]:
    """The precision that is worth choosing by the seconds of some rounds, and the medians."""
    seconds = {each: statistics.median(spent[each] for spent in times) for each in times[0]}
    best = min(seconds, key=lambda each: seconds[each])
    worth = seconds[best] <= WORTH * seconds["float32"]
    return best if worth else "float32", seconds


def is_usable(
    precision: Precision, *, convolves: bool, now: Callable[[], float] = time.thread_time,
    device: torch.device = PROCESSOR,
) -> bool:
    """Whether this machine computes a small layer in a precision about as fast as in float32.

    If torch has no kernel for a precision, it takes hundreds of times as long, and measuring a
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
