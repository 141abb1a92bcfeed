"""When ticks are due: no drift, a bounded catch-up, and slips that are counted."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtagent.clock import NANO
from rtagent.config import GAME_BOY_HZ
from rtagent.env.wall_clock import Plan, TickSchedule

ANCHOR_NS = 123_456_789_012_345
RATES = [GAME_BOY_HZ, 50.0, 3.0, 1000.0, 1 / 7]
PERIOD_NS = 20_000_000


def exact_due(rate_hz: float, anchor_tick: int, tick: int) -> Fraction:
    return ANCHOR_NS + (tick - anchor_tick) * NANO / Fraction(rate_hz)


@pytest.mark.parametrize("rate_hz", RATES)
@pytest.mark.parametrize("ticks", [0, 1, 2, 59, 10**6, 10**6 + 1, 365 * 24 * 3600 * 60])
def test_lateness_does_not_accumulate(rate_hz: float, ticks: int) -> None:
    schedule = TickSchedule(rate_hz, ANCHOR_NS, 17, 5)
    # Half a nanosecond is rounding; the rest is a double's last digit after a year.
    allowed = Fraction(1, 2) + ticks * NANO / Fraction(rate_hz) / 2**51
    assert abs(schedule.due_ns(17 + ticks) - exact_due(rate_hz, 17, 17 + ticks)) <= allowed


@pytest.mark.parametrize(
    ("late_ns", "plan"),
    [
        (-5, Plan(0, 0)),
        (0, Plan(0, 0)),
        (PERIOD_NS - 1, Plan(0, 0)),
        (PERIOD_NS, Plan(1, 0)),
        (2 * PERIOD_NS - 1, Plan(1, 0)),
        (3 * PERIOD_NS, Plan(3, 0)),
        (4 * PERIOD_NS - 1, Plan(3, 0)),
        (4 * PERIOD_NS, Plan(0, 4 * PERIOD_NS)),
        (100 * PERIOD_NS + 7, Plan(0, 100 * PERIOD_NS + 7)),
    ],
)
def test_plan(late_ns: int, plan: Plan) -> None:
    schedule = TickSchedule(50.0, ANCHOR_NS, 0, 3)
    due = schedule.due_ns(8)
    assert schedule.plan(8, due + late_ns) == plan
    assert schedule.due_ns(8) == due + plan.slipped_ns


@given(
    st.sampled_from(RATES), st.integers(0, 100),
    st.lists(st.integers(0, 3 * NANO), min_size=1, max_size=20),
)
def test_whatever_holds_it_up(rate_hz: float, most: int, hold_ups_ns: list[int]) -> None:
    """The tick acted on is the newest that is due, and only slips move the anchor."""
    schedule = TickSchedule(rate_hz, ANCHOR_NS, 0, most)
    tick, now, slipped = 0, ANCHOR_NS, 0
    for hold_up in hold_ups_ns:
        now = max(now + hold_up, schedule.due_ns(tick))
        plan = schedule.plan(tick, now)
        assert 0 <= plan.catch_up <= most
        assert not (plan.catch_up and plan.slipped_ns)
        tick += plan.catch_up
        slipped += plan.slipped_ns
        assert schedule.due_ns(tick) <= now + 1
        assert schedule.due_ns(tick + 1) > now - 1
        assert schedule.anchor_ns == ANCHOR_NS + slipped
        tick += 1
