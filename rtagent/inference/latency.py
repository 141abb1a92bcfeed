"""Injected latency: pretend that the policy is slower than it is.

The whole inference, forward pass included, is padded to a value drawn from a distribution, so that
a large or remote model can be studied on a small machine. Figures from such a run are marked.
"""

from __future__ import annotations

import math

import numpy as np

from rtagent.config import InferenceConfig
from rtagent.staggering.inference_times import outliers

SMALLEST_FRACTION = 0.05
"""Draws below this fraction of the mean are raised to it: an inference time is never negative."""


def draw(inference: InferenceConfig, rng: np.random.Generator) -> float:
    """Draw one inference time, in seconds; 0 if no latency is injected.

    Args:
        inference: its `injected_latency_ms`, `_distribution` and `_spread`.
        rng: source of randomness.
    """
    mean_s, spread = inference.injected_latency_ms / 1e3, inference.injected_latency_spread
    distribution = inference.injected_latency_distribution
    if distribution == "constant" or mean_s == 0.0:
        return mean_s
    if distribution == "gauss":
        return max(SMALLEST_FRACTION, 1.0 + spread * rng.standard_normal()) * mean_s
    if distribution == "lognormal":
        return mean_s * math.exp(spread * rng.standard_normal() - spread * spread / 2)
    share, factor = outliers(spread)
    return mean_s * (factor if rng.random() < share else 1.0)
