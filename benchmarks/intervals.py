"""95 % intervals of means over seeds, by Student's t."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rtagent.evaluation.intervals import student


def half_interval(values: NDArray[Any]) -> NDArray[Any]:
    """Half of the 95 % interval of a mean over seeds.

    Args:
        values: (seeds, ...).

    Returns:
        (...); NaN with a single seed.
    """
    seeds = len(values)
    if seeds < 2:
        return np.full(values.shape[1:], np.nan)
    half: NDArray[Any] = student(seeds) * values.std(axis=0, ddof=1)
    return half / math.sqrt(seeds)
