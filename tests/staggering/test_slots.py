"""Absolute slots, step by step."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtagent.staggering.instructions import Deposit, Infer, Inferred, Moment, WaitUntil
from rtagent.staggering.slots import expected_time, maximum_time, slot_after
from rtagent.staggering.state import Plan, StaggerState
from tests.staggering.begun import TICK, begun, fresh


def settled(algorithm: str, period: float, processes: int = 5, samples: int = 50) -> StaggerState:
    """A state in which T is known, the epoch is 0 and enough samples exist."""
    state = fresh(algorithm, processes)
    plan = state.load()
    for _ in range(samples):
        state.record(plan, period)
    plan.period = period
    state.store(plan)
    return state


@given(
    st.integers(1, 12), st.integers(0, 11), st.integers(0, 11), st.floats(0.001, 2.0),
    st.floats(-1e3, 1e3), st.floats(-1e3, 1e3),
)
def test_slots_are_on_the_grid_not_early_and_the_smallest_such(
    processes: int, position: int, base: int, period: float, epoch: float, earliest: float
) -> None:
    position %= processes
    plan = Plan(epoch=epoch, period=period, base=base % processes)
    slot = slot_after(plan, position, processes, earliest, -math.inf)
    own = epoch + (position - base) % processes * period / processes
    close = pytest.approx(0.0, abs=1e-6)
    assert math.remainder(slot - own, period) == close
    assert slot >= max(earliest, own) - 1e-6
    assert slot == pytest.approx(own) or slot - period < earliest + 1e-6


def test_no_slot_is_used_twice_and_rings_share_them_out() -> None:
    plan = Plan(epoch=0.0, period=1.0, base=0)
    used = sorted(slot_after(plan, position, 4, 10.0, -math.inf) for position in range(4))
    assert used == pytest.approx([10.0, 10.25, 10.5, 10.75])
    assert slot_after(plan, 0, 4, 9.9, 10.0) == pytest.approx(11.0)
    assert slot_after(plan, 0, 1, 9.9, 10.0) == pytest.approx(11.0)


def test_maximum_time_registers_one_t_after_its_slot() -> None:
    state = settled("maximum-time", 0.1)
    run = begun(maximum_time, 2, state)
    assert run.send(Moment(1.0, 50)) == WaitUntil(pytest.approx(1.04))
    assert run.send(Moment(1.0401, 52)) == Infer(None)
    run.send(Inferred(52, 0.09, 1.1301, 56))
    assert run.send(Moment(1.1301, 56)) == WaitUntil(pytest.approx(1.14))
    assert run.send(Moment(1.1401, 57)) == Deposit(58, 52)


def test_maximum_time_waits_on_when_t_has_grown_meanwhile() -> None:
    state = settled("maximum-time", 0.1)
    run = begun(maximum_time, 0, state)
    assert run.send(Moment(1.0, 50)) == Infer(None)
    run.send(Inferred(50, 0.09, 1.09, 54))
    assert run.send(Moment(1.09, 54)) == WaitUntil(pytest.approx(1.1))
    state.store(replace(state.load(), period=0.13))
    assert run.send(Moment(1.1, 55)) == WaitUntil(pytest.approx(1.13))
    assert run.send(Moment(1.13, 56)) == Deposit(57, 50)


def test_an_action_that_sets_the_maximum_is_registered() -> None:
    state = settled("maximum-time", 0.1)
    run = begun(maximum_time, 0, state)
    run.send(Moment(1.0, 50))
    run.send(Inferred(50, 0.12, 1.12, 56))
    assert run.send(Moment(1.12, 56)) == Deposit(57, 50)
    assert state.load().period == pytest.approx(0.12)


def test_the_first_inference_time_takes_the_place_of_the_guess_if_it_is_shorter_too() -> None:
    state = settled("maximum-time", TICK, processes=1, samples=0)
    run = begun(maximum_time, 0, state)
    assert run.send(Moment(1.0, 50)) == Infer(None)
    run.send(Inferred(50, 0.003, 1.003, 50))
    assert state.load().period == pytest.approx(0.003)


def test_expected_time_registers_at_once() -> None:
    state = settled("expected-time", 0.1)
    run = begun(expected_time, 0, state)
    run.send(Moment(1.0, 50))
    run.send(Inferred(50, 0.07, 1.07, 53))
    assert run.send(Moment(1.07, 53)) == Deposit(54, 50)


def test_expected_time_moves_t_for_more_than_one_percent_alone() -> None:
    state = settled("expected-time", 0.1, samples=20)
    run = begun(expected_time, 0, state)
    run.send(Moment(1.0, 50))
    before = state.load().generation
    run.send(Inferred(50, 0.1001, 1.1, 55))
    assert (state.load().period, state.load().generation) == (0.1, before)
    run.send(Moment(1.1, 55))
    run.send(Moment(1.1, 55))
    run.send(Inferred(55, 0.2, 1.3, 65))
    mean = (20 * 0.1 + 0.1001 + 0.2) / 22
    assert state.load().period == pytest.approx(1.02 * mean, rel=1e-4)
    assert state.load().generation > before


def test_a_plan_that_changed_during_the_wait_is_read_again() -> None:
    state = settled("maximum-time", 0.1)
    run = begun(maximum_time, 1, state)
    assert run.send(Moment(1.0, 50)) == WaitUntil(pytest.approx(1.02))
    plan = state.load()
    state.store(replace(plan, epoch=plan.epoch + 0.01, generation=plan.generation + 1))
    assert run.send(Moment(1.02, 51)) == WaitUntil(pytest.approx(1.03))


def test_a_late_process_takes_its_slot_within_the_tolerance_but_not_its_first() -> None:
    state = settled("expected-time", 0.1)
    run = begun(expected_time, 0, state)
    assert run.send(Moment(1.005, 50)) == WaitUntil(pytest.approx(1.1)), "first: no tolerance"
    assert run.send(Moment(1.1, 55)) == Infer(None)
    run.send(Inferred(55, 0.1, 1.209, 60))
    run.send(Moment(1.209, 60))
    assert run.send(Moment(1.209, 60)) == Infer(None), "9 ms late of 10 ms granted"
    run.send(Inferred(60, 0.1, 1.311, 65))
    run.send(Moment(1.311, 65))
    assert run.send(Moment(1.311, 65)) == WaitUntil(pytest.approx(1.4)), "11 ms late"
    assert run.send(Moment(1.4, 70)) == Infer(None)
    state.leave(4, 1.498)
    run.send(Inferred(70, 0.1, 1.505, 75))
    run.send(Moment(1.505, 75))
    assert run.send(Moment(1.505, 75)) == WaitUntil(pytest.approx(1.6)), "first of the new ring"


def test_there_is_no_tolerance_before_two_samples_per_process() -> None:
    state = settled("expected-time", 0.1, samples=8)
    run = begun(expected_time, 0, state)
    run.send(Moment(1.0, 50))
    run.send(Inferred(50, 0.1, 1.105, 55))
    run.send(Moment(1.105, 55))
    assert run.send(Moment(1.105, 55)) == WaitUntil(pytest.approx(1.2))


@pytest.mark.parametrize(("epoch", "damaged"), [(1e6, True), (2.11, True), (2.0, False)])
def test_an_epoch_far_in_the_future_is_damage(epoch: float, damaged: bool) -> None:
    state = settled("maximum-time", 0.1)
    plan = replace(state.load(), epoch=epoch)
    state.store(plan)
    run = begun(maximum_time, 0, state)
    assert run.send(Moment(1.0, 50)) == (Infer(None) if damaged else WaitUntil(epoch))
    assert state.load().epoch == (1.0 if damaged else epoch)
    # Those that wait for a slot read the plan again.
    assert (state.load().generation > plan.generation) == damaged
