"""The powers of prioritized sampling: priorities from errors, and weights from priorities.

After the frames of a batch have filled the caches, each first call of a NumPy function takes
microseconds; the compiled version is a single call.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from rtagent.memory.compiled import Function, compiled

Doubles = npt.NDArray[np.float64]
Floats = npt.NDArray[np.floating[Any]]

SMALLEST_ERROR = 1e-6
"""Added to each error, so that every transition can still be drawn."""


class _Job(ctypes.Structure):
    """`struct job` of `powers.c`."""

    _fields_ = (
        ("count", ctypes.c_int64),
        ("numbers", ctypes.c_void_p),
        *((name, ctypes.c_double) for name in ("exponent", "smallest")),
    )


class Powers:
    """Computes powers; each result is valid until the next call. For one thread at a time."""

    def __init__(self) -> None:
        self._priorities = compiled("rtagent_priorities")
        self._weights = compiled("rtagent_weights")
        self._numbers = np.empty(0)
        self._job = _Job(smallest=SMALLEST_ERROR)
        self._address = ctypes.addressof(self._job)

    def priorities(self, errors: Floats, exponent: float) -> Doubles:
        """(|error| + `SMALLEST_ERROR`)^exponent for errors (n,)."""
        if self._priorities is None:
            found: Doubles = (np.abs(errors).astype(np.float64) + SMALLEST_ERROR) ** exponent
            return found
        return self._run(self._priorities, errors, exponent)

    def weights(self, priorities: Doubles, beta: float) -> Doubles:
        """Importance weights (n,) for priorities (n,) > 0; the largest weight is 1.

        w_i = (N P(i))^-beta / max_j w_j (Schaul et al., 2016, Sec. 3.4). N and the sum of all
        priorities cancel, which leaves (min_j p_j / p_i)^beta.
        """
        if self._weights is None:
            found: Doubles = (priorities.min() / priorities) ** beta
            return found
        return self._run(self._weights, priorities, beta)

    def _run(self, function: Function, numbers: Floats, exponent: float) -> Doubles:
        if len(self._numbers) != len(numbers):
            self._numbers = np.empty(len(numbers))
            self._job.count, self._job.numbers = len(numbers), self._numbers.ctypes.data
        self._numbers[:] = numbers
        self._job.exponent = exponent
        function(self._address)
        return self._numbers
