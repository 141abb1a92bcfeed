"""When a dead process is started again."""

from __future__ import annotations

import pytest

from rtagent.restart import (
    FIRST_PAUSE_S,
    LONGEST_PAUSE_S,
    MOST_RESTARTS,
    WINDOW_S,
    RestartPolicy,
)


def pause(policy: RestartPolicy, now: float, jitter: float = 1.0) -> float | None:
    due = policy.next_start(now, jitter)
    return None if due is None else due - now


def test_pauses_double() -> None:
    policy = RestartPolicy()
    pauses = [pause(policy, float(time)) for time in range(MOST_RESTARTS)]
    assert pauses == [pytest.approx(FIRST_PAUSE_S * 2**n) for n in range(MOST_RESTARTS)]
    assert max(each or 0.0 for each in pauses) <= LONGEST_PAUSE_S


def test_given_up_after_so_many() -> None:
    policy = RestartPolicy()
    for time in range(MOST_RESTARTS):
        assert pause(policy, float(time)) is not None
    assert pause(policy, float(MOST_RESTARTS)) is None
    assert pause(policy, WINDOW_S - 0.001) is None


def test_only_the_last_minute_counts() -> None:
    policy = RestartPolicy()
    for time in range(MOST_RESTARTS):
        pause(policy, float(time))
    # The first of them is forgotten at this moment, the next a second later.
    assert pause(policy, WINDOW_S) is not None
    assert pause(policy, WINDOW_S + 0.5) is None
    assert pause(policy, WINDOW_S + 1.0) is not None


def test_process_that_ran_well_starts_quickly_again() -> None:
    policy = RestartPolicy()
    for time in range(3):
        pause(policy, float(time))
    assert pause(policy, 1000.0) == pytest.approx(FIRST_PAUSE_S)


@pytest.mark.parametrize(("jitter", "share"), [(0.0, 0.5), (0.5, 0.75), (1.0, 1.0)])
def test_jitter_shortens_by_half_at_most(jitter: float, share: float) -> None:
    assert pause(RestartPolicy(), 5.0, jitter) == pytest.approx(share * FIRST_PAUSE_S)


def test_one_death_a_minute_goes_on_for_ever() -> None:
    policy = RestartPolicy()
    for minute in range(100):
        assert pause(policy, minute * WINDOW_S) == pytest.approx(FIRST_PAUSE_S)
