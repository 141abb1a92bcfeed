"""What is made of the trials of an experiment: intervals and bars."""

from __future__ import annotations

import math

import numpy as np
import pytest
from matplotlib.figure import Figure

from benchmarks.results import Point, bars, half_interval
from rtagent.evaluation.intervals import student


def test_the_quantile_is_students() -> None:
    """As tables print it, and as a plain integral of the density says."""
    known = {2: 12.7062, 3: 4.3027, 4: 3.1824, 5: 2.7764, 10: 2.2622, 31: 2.0423, 121: 1.9799}
    for seeds, quantile in known.items():
        assert student(seeds) == pytest.approx(quantile, abs=1e-4)
    for seeds in (4, 8, 20):
        df, most = seeds - 1, student(seeds)
        x = np.linspace(-most, most, 100_001)
        density = (1 + x**2 / df) ** (-(df + 1) / 2)
        whole = math.sqrt(df * math.pi) * math.gamma(df / 2) / math.gamma((df + 1) / 2)
        assert np.trapezoid(density, x) / whole == pytest.approx(0.95, abs=1e-6)


def test_the_interval_is_students() -> None:
    values = np.array([[1.0, 5.0], [2.0, 5.0], [6.0, 5.0]])
    half = []
    for column in values.T:
        mean = sum(column) / 3
        deviation = math.sqrt(sum((value - mean) ** 2 for value in column) / 2)
        half.append(4.30265 * deviation / math.sqrt(3))
    assert half_interval(values) == pytest.approx(half, rel=1e-5)
    assert half_interval(values[:, 0]) == pytest.approx(half[0], rel=1e-5)


def test_one_seed_has_no_interval() -> None:
    assert np.isnan(half_interval(np.array([4.0])))
    assert np.isnan(half_interval(np.ones((1, 7)))).all()


def test_a_bar_is_left_out_where_a_figure_is_unknown_in_a_trial() -> None:
    """The mean over the seeds where it is known is no fair sample, as in a line."""
    axes = Figure().subplots()
    bars(axes, 0, 1, [Point(2.0, 0.5, 3, 0), Point(9.0, 0.5, 2, 1), None])
    heights = [bar.get_height() for bar in axes.patches]
    assert heights == pytest.approx([2.0, math.nan, math.nan], nan_ok=True)
