"""Figures against hand counts and textbook cases."""

from __future__ import annotations

import numpy as np
import pytest

from rtagent.staggering.arbiter import Source
from rtagent.staggering.figures import (
    ActionRecord,
    TickRecord,
    converged_s,
    figures,
    interaction,
    processes_needed,
)

A, R, D = Source.AGENT, Source.REUSED, Source.DEFAULT


def ticks(sources: list[Source]) -> list[TickRecord]:
    return [
        TickRecord(k, source, 6 if source else 0, k - 6 if source else -1, k * 0.02)
        for k, source in enumerate(sources)
    ]


def test_inaction_counts_default_ticks_and_strictly_re_used_ones_too() -> None:
    found = figures(ticks([A, A, R, D, A, R, A, A]), [], 0.02, [])
    assert (found["inaction_fraction"], found["strict_inaction_fraction"]) == (1 / 8, 3 / 8)


def test_nothing_known_is_none_and_not_nought() -> None:
    empty = figures([], [], 0.02, [])
    assert set(empty.values()) == {None}
    only_default = figures(ticks([D, D]), [], 0.02, [])
    assert only_default["inaction_fraction"] == 1.0
    assert only_default["delay_mean"] is None


def test_interaction_time_is_the_gap_between_ticks_with_a_new_action() -> None:
    found = figures(ticks([A, R, A, D, D, A, D, A]), [], 0.02, [])
    assert found["interaction_mean"] == pytest.approx(7 / 3)
    assert found["gap_cv"] == pytest.approx(np.std([2, 3, 2]) / (7 / 3))


def test_interaction_time_needs_two_actions_and_its_evenness_three() -> None:
    assert interaction([]) == interaction([1.0]) == (None, None)
    assert interaction([1.0, 3.5]) == (2.5, None)
    assert interaction([0, 5, 10, 15]) == (5.0, 0.0)


def test_overwritten_is_what_no_tick_used() -> None:
    actions = [ActionRecord(0.0, used) for used in (True, False, False, True, False)]
    assert figures([], actions, 0.02, [])["overwritten_fraction"] == 3 / 5


def test_delay_covers_executed_actions_alone() -> None:
    run = [
        TickRecord(9, A, 6, 3, 0.18), TickRecord(10, R, 5, 5, 0.20, position=2),
        TickRecord(11, D, 0, -1, 0.22),
    ]
    found = figures(run, [], 0.02, run)
    assert found["from_chunk_fraction"] == 1 / 3
    assert found["delay_mean"] == 5.5
    assert found["delay_p99"] == pytest.approx(5.99)


def test_converged_is_the_start_of_the_first_clean_second() -> None:
    assert converged_s(ticks([D] * 3 + [A] * 20 + [D] + [A] * 50), 0.02) == pytest.approx(0.48)
    assert converged_s(ticks([A] * 50), 0.02) == 0.0
    assert converged_s(ticks([A] * 49), 0.02) is None
    assert converged_s(ticks([D, A]), 5.0) == 5.0


@pytest.mark.parametrize(
    ("algorithm", "needed"), [("maximum-time", 7), ("expected-time", 5), ("adaptive", 6)]
)
def test_processes_needed(algorithm: str, needed: int) -> None:
    assert processes_needed(0.1, 0.14, 0.02, algorithm) == needed


def test_processes_needed_forgives_rounding_and_never_is_nought() -> None:
    assert processes_needed(0.1 * 3, 0.1 * 3, 0.1, "maximum-time") == 3
    assert processes_needed(0.1 * 3, 0.1 * 3, 0.1) == 3
    assert processes_needed(1e-12, 1e-12, 0.02) == 1


def test_of_more_than_ten_processes_one_in_ten_is_added() -> None:
    assert processes_needed(0.21, 0.25, 0.02) == 13


def test_no_process_more_where_the_longest_fits_into_the_same_ticks() -> None:
    tick = 1.0 / 59.7275
    assert processes_needed(0.0820, 0.0830, tick) == 5
    assert processes_needed(0.0820, 0.0840, tick) == 6


def test_the_slack_must_be_above_the_variation_not_only_above_that_of_99_in_100() -> None:
    tick = 1.0 / 59.7275
    assert processes_needed(0.1430, 0.1450, tick) == 9
    assert processes_needed(0.1450, 0.1500, tick) == 10, "9 ticks are 150.7 ms, 99.9 % need 151.7"
    assert processes_needed(0.1450, 0.1450, tick) == 9


@pytest.mark.parametrize("bad", [(0.0, 1.0, 1.0), (2.0, 1.0, 1.0), (1.0, 1.0, 0.0)])
def test_processes_needed_refuses_nonsense(bad: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match="needs"):
        processes_needed(*bad)
    with pytest.raises(ValueError, match="algorithm"):
        processes_needed(1.0, 1.0, 1.0, "sequential")
