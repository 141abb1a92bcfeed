"""Percentiles of some thousand numbers, several times a second.

`numpy.percentile` gives the same, but takes ten times as long as the sorting alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt


def percentiles(values: npt.NDArray[Any], wanted: Sequence[float]) -> list[float]:
    """Percentiles with linear interpolation between the two nearest values.

    Args:
        values: (n,) finite numbers, n >= 1, in any order.
        wanted: 0 .. 100; 100 is the largest value.
    """
    ordered = np.sort(values)
    last = len(ordered) - 1
    found = []
    for percentile in wanted:
        place = percentile / 100.0 * last
        below = int(place)
        low, high = float(ordered[below]), float(ordered[min(below + 1, last)])
        found.append(low + (high - low) * (place - below))
    return found
