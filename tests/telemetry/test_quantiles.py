"""Percentiles, against NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

from rtagent.telemetry.quantiles import percentiles

WANTED = (0.0, 1.0, 50.0, 99.0, 99.9, 100.0)


@pytest.mark.parametrize("count", [1, 2, 3, 100, 3584])
def test_percentiles_are_those_of_numpy(count: int) -> None:
    random = np.random.default_rng(count)
    for values in (random.normal(size=count), random.integers(-9, 9, count)):
        expected = np.percentile(values, WANTED)
        assert percentiles(values, WANTED) == pytest.approx(expected.tolist(), rel=1e-12)


def test_the_values_stay_as_they_are() -> None:
    values = np.array([3, 1, 2])
    assert percentiles(values, (50.0,)) == [2.0]
    assert values.tolist() == [3, 1, 2]
