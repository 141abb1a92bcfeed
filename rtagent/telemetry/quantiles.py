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
    places = np.array(wanted) / 100.0 * (len(ordered) - 1)
    found: list[float] = np.interp(places, np.arange(len(ordered)), ordered).tolist()
    return found
