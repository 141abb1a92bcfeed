"""What is said of the final returns of both sides: the arithmetic."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from benchmarks.learning.dqn_curves import Curves, compared, interval


def curves(naive: Sequence[float], ours: Sequence[float]) -> Curves:
    """Runs of a single episode each, by its return."""
    found = Curves()
    found.returns = {"naive": [[each] for each in naive], "ours": [[each] for each in ours]}
    return found


def test_the_interval_of_few_seeds_is_as_wide_as_the_table_of_students_t_says() -> None:
    finals = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    half = 2.776 * np.sqrt(2.5 / 5)
    assert interval(finals) == pytest.approx((3.0 - half, 3.0 + half), abs=1e-3)
    assert interval(finals[:1]) is None


@pytest.mark.parametrize(
    ("naive", "ours", "alike"),
    [
        ((1, 2, 3, 4, 5), (2, 3, 4, 5, 6), True), ((1, 2, 3, 4, 5), (51, 52, 53, 54, 55), False),
        # The chance of the most extreme split of so few is above the level of the test.
        ((1, 2, 3), (51, 52, 53), None), ((1,), (51,), None),
    ],
)
def test_few_seeds_say_nothing(
    naive: Sequence[float], ours: Sequence[float], alike: bool | None
) -> None:
    assert compared(curves(naive, ours))["alike"] is alike
