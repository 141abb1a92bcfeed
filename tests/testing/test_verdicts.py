"""From findings to verdicts."""

from __future__ import annotations

from collections import Counter

import pytest

from rtagent.clock import NANO
from rtagent.env.wall_clock import TickSchedule
from rtagent.testing.findings import Findings
from rtagent.testing.report import Check, NotRealtime, Report
from rtagent.testing.verdicts import judge

TICK = 0.02


def verdict(name: str, **facts: object) -> Check:
    found = Findings(rate_hz=1 / TICK, **facts)  # type: ignore[arg-type]
    return next(check for check in judge(found) if check.name == name)


@pytest.mark.parametrize(("slow", "late", "expected", "advice"), [
    (0.4, 0.1, "ok", ""),
    (0.6, 0.1, "warn", "little of the tick is left"),
    (1.2, 0.1, "fail", "set env.rate_hz to 20 or less"),
    (1.2, 0.4, "warn", "too busy"),
])
def test_step_time_is_p99_of_a_tick_unless_the_machine_is_late(
    slow: float, late: float, expected: str, advice: str
) -> None:
    steps, lates = [0.001] * 90 + [slow * TICK] * 10, [late * TICK] * 100
    check = verdict("step time", steps_s=steps, late_s=lates)
    assert check.verdict == expected
    assert check.advice.startswith(advice) or advice in check.advice
    assert bool(check.advice) == bool(advice)


def test_a_step_that_is_always_slow_fails_on_any_machine() -> None:
    check = verdict("step time", steps_s=[0.05] * 10, late_s=[])
    assert (check.verdict, check.advice) == (
        "fail", "set env.rate_hz to 10 or less, or make the step faster"
    )
    assert check.found.endswith("(10 steps); no time was left between them")
    assert "busy" in verdict("step time", steps_s=[0.05] * 10, late_s=[1.0]).advice


@pytest.mark.parametrize("most", [0, 5])
@pytest.mark.parametrize("ticks", [0.9, 1.5, 2.5, 4.0, 6.5, 7.5])
def test_reset_time_says_what_it_costs(ticks: float, most: int) -> None:
    check = verdict("reset time", resets_s=[0.001, ticks * TICK], max_catch_up_ticks=most)
    schedule = TickSchedule(1 / TICK, 0, 0, most)
    plan = schedule.plan(1, round(ticks * TICK * NANO))
    assert check.verdict == ("ok" if ticks < 1.0 else "warn")
    assert ("is late" in check.advice) == (1.0 < ticks < 2.0)
    assert ("slips" in check.advice) == (plan.slipped_ns > 0)
    assert (f"fills {plan.catch_up} of" in check.advice) == (plan.catch_up > 0)


def test_episodes_of_random_actions_are_counted() -> None:
    for ended, told in (([7], "1 episode of"), ([7, 9], "2 episodes of")):
        assert verdict("episode ends", steps_s=[0.001] * 20, ended=ended).found.startswith(told)


@pytest.mark.parametrize(("first", "then", "expected"), [
    ((0, 3, 9), (0, 3, 9), "ok"),
    ((0, 3, 9), (0, 2, 8), "ok"),
    ((0, 3, 9), (0, 3, 10), "fail"),
    ((0, 3, 9), (0, 4, 9), "fail"),
    ((1, 3, 9), (2, 3, 9), "fail"),
    ((1, 3, 9), (1, 3, 9), "warn"),
])
def test_a_number_that_grows_with_each_close_is_a_leak(
    first: tuple[int, int, int], then: tuple[int, int, int], expected: str
) -> None:
    names = ("processes", "threads", "descriptors")
    closed, again = (dict(zip(names, counts, strict=True)) for counts in (first, then))
    assert verdict("close", closed=closed, closed_again=again).verdict == expected


def test_only_a_reward_that_is_not_finite_is_said_to_cut_its_episode() -> None:
    assert "cuts its episode" in verdict("rewards", rewards=Counter({"nan": 2})).advice
    for others in ({}, {"nan": 2}):
        faults = Counter({"NoneType, which is not a number": 1, **others})
        assert "ends its process" in verdict("rewards", rewards=faults).advice


def test_checks_that_were_not_reached_are_skipped() -> None:
    assert {check.verdict for check in judge(Findings())} == {"skip"}


def test_a_report_raises_what_failed() -> None:
    good, bad = Check("noop", "ok", "declared"), Check("rewards", "fail", "nan", "find it")
    Report("A-v0", 50.0, (good, Check("close", "warn", "slow"))).raise_for_failures()
    report = Report("A-v0", 50.0, (good, bad))
    assert not report.ok
    assert report.check("rewards") is bad
    with pytest.raises(KeyError):
        report.check("beauty")
    with pytest.raises(NotRealtime, match=r"A-v0 .*\nfail  rewards: nan; find it"):
        report.raise_for_failures()
    assert report.as_dict()["checks"][1] == {
        "name": "rewards", "verdict": "fail", "found": "nan", "advice": "find it",
    }
