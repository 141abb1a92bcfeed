"""The powers of prioritized sampling, compiled or not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rtagent.learning.replay.powers import SMALLEST_ERROR, Powers

pytestmark = pytest.mark.usefixtures("either_way")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("exponent", [0.0, 0.6, 1.0])
def test_priorities_of_errors(dtype: Any, exponent: float) -> None:
    powers = Powers()
    for errors in ([0.0, -2.5, 1e6, np.nan, np.inf], [3.0]):
        found = powers.priorities(np.array(errors, dtype), exponent)
        wanted = [(abs(error) + SMALLEST_ERROR) ** exponent for error in errors]
        np.testing.assert_allclose(found, wanted, rtol=1e-12)


@pytest.mark.parametrize("beta", [0.0, 0.4, 1.0])
def test_the_largest_weight_is_one(beta: float) -> None:
    powers = Powers()
    for priorities in ([0.5, 2.0, 4.0], [7.0], [1e-300, 1e300]):
        found = powers.weights(np.array(priorities), beta)
        wanted = [(priorities[0] / priority) ** beta for priority in priorities]
        np.testing.assert_allclose(found, wanted, rtol=1e-12)
