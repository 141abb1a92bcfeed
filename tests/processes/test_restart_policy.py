"""When a dead process is started again."""

from __future__ import annotations

import pytest

from rtagent.processes.restart_policy import (
    FIRST_PAUSE_S,
    LONGEST_PAUSE_S,
    MOST_RESTARTS,
    WELL_S,
    RestartPolicy,
)


def pause(policy: RestartPolicy, ran_s: float = 0.0, jitter: float = 1.0) -> float:
    return policy.next_start(1000.0, ran_s, jitter) - 1000.0


def test_pauses_double_up_to_the_longest_and_never_end() -> None:
    policy = RestartPolicy()
    pauses = [pause(policy) for _ in range(2000)]
    doubled = [FIRST_PAUSE_S * 2.0**n for n in range(20)]
    assert pauses[:20] == pytest.approx([min(each, LONGEST_PAUSE_S) for each in doubled])
    assert set(pauses[20:]) == {LONGEST_PAUSE_S}


def test_it_fails_after_so_many_restarts_in_vain_and_not_before() -> None:
    policy = RestartPolicy()
    for _ in range(MOST_RESTARTS):
        pause(policy)
        assert not policy.failing
    pause(policy)
    assert policy.failing


def test_all_restarts_before_it_counts_as_failed_take_seconds() -> None:
    policy = RestartPolicy()
    assert sum(pause(policy, jitter=0.0) for _ in range(MOST_RESTARTS)) > 4.0
    assert not policy.failing


def test_process_that_ran_well_starts_quickly_again() -> None:
    policy = RestartPolicy()
    for _ in range(MOST_RESTARTS + 3):
        pause(policy, ran_s=WELL_S - 0.001)
    assert policy.failing
    assert pause(policy, ran_s=WELL_S) == pytest.approx(FIRST_PAUSE_S)
    assert not policy.failing


@pytest.mark.parametrize(("jitter", "share"), [(0.0, 0.5), (0.5, 0.75), (1.0, 1.0)])
def test_jitter_shortens_by_half_at_most(jitter: float, share: float) -> None:
    assert pause(RestartPolicy(), jitter=jitter) == pytest.approx(share * FIRST_PAUSE_S)
