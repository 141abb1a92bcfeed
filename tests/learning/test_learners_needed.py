"""How many learners it takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtagent.learning.learners_needed import learners_needed


@pytest.mark.parametrize(
    ("gradient", "apply", "tick", "learners"),
    [
        (0.010, 0.001, 0.016, 1),
        (0.015, 0.001, 0.016, 1),
        (0.0151, 0.001, 0.016, 2),
        (0.028, 0.002, 0.016, 2),
        (0.3, 0.016, 0.016, 20),
        (0.001, 0.017, 0.016, None),
        (0.0, 0.0, 0.016, 1),
        (0.1 + 0.2, 0.0, 0.1, 3),
    ],
)
def test_learners_needed(gradient: float, apply: float, tick: float, learners: int | None) -> None:
    assert learners_needed(gradient, apply, tick) == learners


@given(gradient=st.floats(1e-4, 2.0), apply=st.floats(1e-5, 0.02), tick=st.floats(1e-3, 0.1))
def test_the_number_of_learners_is_the_smallest_that_keeps_up(
    gradient: float, apply: float, tick: float
) -> None:
    needed = learners_needed(gradient, apply, tick)

    def updates_per_s(learners: int) -> float:
        return min(learners / (gradient + apply), 1.0 / apply)

    if needed is None:
        assert updates_per_s(10**6) < 1.0 / tick
    else:
        assert updates_per_s(needed) >= (1.0 - 1e-6) / tick
        assert needed == 1 or updates_per_s(needed - 1) < 1.0 / tick
