"""Whether a figure is what was counted."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.recount.agreement import Between, OneOf, agrees, merged


@pytest.mark.parametrize(
    ("said", "counted", "slack", "right"),
    [
        (100.0, [100.4], 0, True),
        (100.0, [101.0], 0, False),
        (102.0, [101.0, 103.0], 0, True),
        (6, [5], 1, True),
        (6, [5], 0, False),
        (7, [5], 1, False),
        (1000, [1004], 0, True),
        (None, [None], 0, True),
        (None, [0.0], 0, False),
        (0.0, [None], 0, False),
        ("running", ["running"], 0, True),
        ("running", ["dead"], 0, False),
        (True, [True], 0, True),
        (True, [False], 0, False),
        (4.0, [Between(3.0, 5.0)], 0, True),
        (5.1, [Between(3.0, 5.0)], 0, False),
        (4.0, [OneOf((3.0, 5.0))], 0, False),
        (5.0, [OneOf((3.0, 5.0))], 0, True),
        (None, [OneOf((None, 5.0))], 0, True),
        (4.0, [OneOf((3.0,)), OneOf((5.0,))], 0, False),
        (5.0, [OneOf((3.0,)), OneOf((5.0,))], 0, True),
        (4.0, [OneOf((None, 3.0)), Between(5.0, 6.0)], 0, True),
    ],
)
def test_a_figure_agrees_at_one_moment_or_between_two(
    said: Any, counted: list[Any], slack: int, right: bool
) -> None:
    assert agrees(said, counted, slack) is right


def test_moments_are_shown_as_one_value_or_as_bounds() -> None:
    assert merged([3, 3]) == 3
    assert merged([3, 4.5]) == [3, 4.5]
    assert merged([Between(1, 2), 5]) == [1, 5]
    assert merged([None]) is None
    assert merged(["running"]) == "running"
