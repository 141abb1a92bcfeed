"""Figures against hand counts and textbook cases."""

from __future__ import annotations

import pytest

from rtagent.staggering.arbiter import Source
from rtagent.staggering.figures import (
    ActionRecord,
    TickRecord,
    converged_s,
    figures,
    gap_cv,
    inaction_fraction,
    overwritten_fraction,
    processes_needed,
)

A, R, D = Source.AGENT, Source.REUSED, Source.DEFAULT


def ticks(sources: list[Source], delay: int = 6) -> list[TickRecord]:
    return [
        TickRecord(k, source, delay if source else 0, k - delay if source else -1)
        for k, source in enumerate(sources)
    ]


def registered(*times: float) -> list[ActionRecord]:
    return [ActionRecord(time, time, True) for time in times]


def test_inaction_counts_default_ticks_and_strictly_re_used_ones_too() -> None:
    run = ticks([A, A, R, D, A, R, A, A])
    assert inaction_fraction(run) == 1 / 8
    assert inaction_fraction(run, strict=True) == 3 / 8


def test_nothing_known_is_none_and_not_nought() -> None:
    empty = figures([], [], 0.02)
    assert list(empty) == [
        "inaction_fraction",
        "strict_inaction_fraction",
        "gap_cv",
        "delay_mean",
        "delay_p99",
        "overwritten_fraction",
        "converged_s",
    ]
    assert set(empty.values()) == {None}
    only_default = figures(ticks([D, D]), [], 0.02)
    assert only_default["inaction_fraction"] == 1.0
    assert only_default["delay_mean"] is None


def test_gap_cv_is_nought_for_even_spacing_and_two_for_five_in_step() -> None:
    assert gap_cv(registered(0.0, 1.0, 2.0, 3.0)) == pytest.approx(0.0)
    in_step = registered(*(5.0 * (n // 5) for n in range(1001)))
    assert gap_cv(in_step) == pytest.approx(2.0, abs=0.01)


def test_gap_cv_of_promised_actions_counts_from_the_promised_tick() -> None:
    early = [ActionRecord(k - early, float(k), True) for k, early in enumerate((0.9, 0.1, 0.5))]
    assert gap_cv(early) == pytest.approx(0.0)
    late = [*early, ActionRecord(3.5, 3.0, True)]
    # Gaps 1, 1, 1.5: mean 7/6, variance 1/18.
    assert gap_cv(late) == pytest.approx((1 / 18) ** 0.5 / (7 / 6))


def test_gap_cv_does_not_depend_on_the_order_of_records() -> None:
    assert gap_cv(registered(3.0, 0.0, 1.0)) == gap_cv(registered(0.0, 1.0, 3.0))


def test_overwritten_is_what_no_tick_used() -> None:
    actions = [ActionRecord(0.0, 0.0, used) for used in (True, False, False, True, False)]
    assert overwritten_fraction(actions) == 3 / 5


def test_delay_covers_executed_actions_alone() -> None:
    run = [TickRecord(9, A, 6, 3), TickRecord(10, R, 5, 5), TickRecord(11, D, 0, -1)]
    found = figures(run, [], 0.02)
    assert found["delay_mean"] == 5.5
    assert found["delay_p99"] == pytest.approx(5.99)


def test_converged_is_the_start_of_the_first_clean_second() -> None:
    assert converged_s(ticks([D] * 3 + [A] * 20 + [D] + [A] * 50), 0.02) == pytest.approx(0.48)
    assert converged_s(ticks([A] * 50), 0.02) == 0.0
    assert converged_s(ticks([A] * 49), 0.02) is None


@pytest.mark.parametrize(
    ("algorithm", "needed"), [("maximum-time", 7), ("expected-time", 5), ("adaptive", 6)]
)
def test_processes_needed(algorithm: str, needed: int) -> None:
    assert processes_needed(0.1, 0.14, 0.02, algorithm) == needed


def test_processes_needed_forgives_rounding_and_never_is_nought() -> None:
    assert processes_needed(0.1 * 3, 0.1 * 3, 0.1, "maximum-time") == 3
    assert processes_needed(0.1 * 3, 0.1 * 3, 0.1) == 3
    assert processes_needed(1e-6, 1e-6, 0.02) == 1


@pytest.mark.parametrize("bad", [(0.0, 1.0, 1.0), (2.0, 1.0, 1.0), (1.0, 1.0, 0.0)])
def test_processes_needed_refuses_nonsense(bad: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match="needs"):
        processes_needed(*bad)
    with pytest.raises(ValueError, match="algorithm"):
        processes_needed(1.0, 1.0, 1.0, "sequential")
