"""The published algorithms, line by line, with their defects."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rtagent.staggering.instructions import Deposit, Infer, Inferred, Moment, WaitUntil
from rtagent.staggering.published import (
    EPSILON,
    published_expected_time,
    published_maximum_time,
)
from tests.staggering.begun import begun, fresh


@pytest.mark.parametrize(("leaves", "delays"), [
    # Line 9: (num - threadnum) mod 4, times 0.1 / 4.
    (None, [0.075, 0.0, 0.025, 0.05]),
    (0, [0.0, 0.0, 0.1 / 3, 0.2 / 3]),
    (1, [0.0, 0.0, 0.1 / 3, 0.2 / 3]),
])
def test_a_new_maximum_delays_the_others_by_their_directed_distance(
    leaves: int | None, delays: list[float]
) -> None:
    state = fresh("published-maximum-time", 4)
    run = begun(published_maximum_time, 1, state)
    assert isinstance(run.send(Moment(1.0, 50)), WaitUntil)
    assert state.delays[1] == EPSILON / 4
    assert run.send(Moment(1.0, 50)) == Infer(None)
    state.delays[3] = 1.0
    if leaves is not None:
        state.leave(leaves, 1.05)
    assert run.send(Inferred(50, 0.1, 1.1, 55)) == WaitUntil(1.1)
    assert run.send(Moment(1.1, 56)) == Deposit(57, 50)
    delays[3] += 1.0
    assert list(state.delays[:4]) == pytest.approx(delays)
    assert state.load().period == 0.1


def test_a_shorter_inference_waits_for_the_maximum() -> None:
    state = fresh("published-maximum-time", 4)
    state.store(replace(state.load(), period=0.1))
    run = begun(published_maximum_time, 0, state)
    assert run.send(Moment(1.0, 50)) == Infer(None)
    assert run.send(Inferred(50, 0.07, 1.07, 53)) == WaitUntil(pytest.approx(1.1))
    assert not state.delays.any()


def test_delays_added_during_the_sleep_are_lost() -> None:
    state = fresh("published-maximum-time", 4)
    run = begun(published_maximum_time, 0, state)
    state.delays[0] = 0.03
    run.send(Moment(1.0, 50))
    run.send(Inferred(50, 0.1, 1.1, 55))
    run.send(Moment(1.1, 55))
    state.delays[0] = 0.03
    assert run.send(Moment(1.11, 55)) == WaitUntil(pytest.approx(1.14))
    state.delays[0] += 0.5
    assert run.send(Moment(1.14, 56)) == Infer(None)
    assert state.delays[0] == 0.0
    run.send(Inferred(56, 0.1, 1.24, 61))
    run.send(Moment(1.24, 61))
    state.delays[0] = 1e9
    assert run.send(Moment(1.24, 61)) == Infer(None), "no algorithm delays that long"


def test_a_shrinking_mean_delays_the_others_as_line_15_says() -> None:
    state = fresh("published-expected-time", 4)
    run = begun(published_expected_time, 0, state)
    run.send(Moment(1.0, 50))
    run.send(Inferred(50, 0.1, 1.1, 55))
    assert list(state.delays[:4]) == pytest.approx([0.0, 0.025, 0.05, 0.075])
    state.delays[:] = 0.0
    run.send(Moment(1.1, 55))
    assert run.send(Moment(1.1, 55)) == Infer(None)
    assert run.send(Inferred(55, 0.06, 1.16, 58)) == WaitUntil(1.16)
    assert state.load().period == pytest.approx(0.08)
    # (N - 1) dist |delta| / N with N = 4, |delta| = 0.02.
    assert list(state.delays[:4]) == pytest.approx([0.0, 0.015, 0.03, 0.045])
