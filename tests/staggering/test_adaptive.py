"""Tickets, the delay bound, and the generator's own steps."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rtagent.staggering.adaptive import _bound, adaptive, claim, complete
from rtagent.staggering.instructions import (
    Deposit,
    Infer,
    Inferred,
    Instruction,
    Moment,
    Now,
    Reply,
    WaitFrame,
)
from rtagent.staggering.state import Plan, StaggerState
from tests.staggering.begun import TICK, begun, fresh


class Process:
    """Runs the algorithm, which is told the same again when it looks twice at one moment."""

    def __init__(self, worker: int, state: StaggerState) -> None:
        self._algorithm = begun(adaptive, worker, state)

    def send(self, reply: Reply) -> Instruction:
        asked = self._algorithm.send(reply)
        return self._algorithm.send(reply) if asked == Now() else asked


def feed(state: StaggerState, *ticks: float, late: bool = False, processes: int = 6) -> None:
    for x in ticks:
        complete(state, processes, x * TICK, late, TICK)


def test_tickets_are_one_frame_apart_while_processes_suffice() -> None:
    state = fresh()
    feed(state, 5.0)
    assert [claim(state, 6, Moment(0.0, 10), TICK).frame for _ in range(4)] == [10, 11, 12, 13]


def test_tickets_are_spread_evenly_when_processes_are_too_few() -> None:
    state = fresh(processes=2)
    feed(state, 5.0, processes=2)
    frames = []
    newest = 0
    for _ in range(9):
        frames.append(claim(state, 2, Moment(0.0, newest), TICK).frame)
        newest = frames[-1]
    assert set(np.diff(frames)) == {2, 3}, "every 2.5 ticks"
    assert frames[8] - frames[0] == 20


def test_a_ticket_never_looks_back_nor_repeats_lost_frames() -> None:
    state = fresh()
    claim(state, 6, Moment(0.0, 10), TICK)
    assert claim(state, 6, Moment(0.0, 50), TICK).frame == 50
    assert claim(state, 6, Moment(0.0, 50), TICK).frame == 51


def test_more_tickets_than_processes_and_a_few_begin_again() -> None:
    state = fresh(processes=6)
    frames = [claim(state, 6, Moment(0.0, 10), TICK).frame for _ in range(11)]
    assert frames == [*range(10, 20), 10]


def test_the_first_ticket_is_for_the_first_frame() -> None:
    assert claim(fresh(), 6, Moment(0.0, -1), TICK).frame == 0


def test_the_bound_is_that_of_the_moment_of_the_claim() -> None:
    state = fresh()
    feed(state, 5.0)
    ticket = claim(state, 6, Moment(0.0, 10), TICK)
    feed(state, 9.0)
    assert ticket.due == 16
    assert claim(state, 6, Moment(0.0, 10), TICK).due > 11 + 9


@settings(max_examples=40)
@given(st.lists(st.floats(4.5, 5.5), min_size=1, max_size=60))
@example([4.5, 5.5, 5.5] + [5.0] * 38)
def test_the_bound_follows_the_quantiles(times: list[float]) -> None:
    state = fresh()
    needed = []
    ns: list[int] = []
    above = 0
    for x in times:
        period = state.load().period
        feed(state, x)
        above = above + 1 if 0 < 1.05 * period * 1e9 < int(x * TICK * 1e9) else 0
        ns.append(int(x * TICK * 1e9))
        if above >= 5:
            ns, above = ns[-5:], 0
        ranked = sorted(ns)
        q50 = ranked[(len(ns) - 1) // 2]
        q95 = ranked[math.ceil(0.95 * (len(ns) - 1))]
        estimate = q50 + 2 * (q95 - q50)
        assert state.load().period == pytest.approx(estimate * 1e-9)
        if len(ns) == 4 * 6 + 16 + 1:
            # Six processes have settled: what was needed while they started is forgotten.
            needed.clear()
        needed.append(math.ceil(estimate * 1e-9 / TICK + 0.05))
    assert state.load().bound == max(needed)


def test_the_bound_is_kept_for_512_samples_after_its_peak() -> None:
    state = fresh()
    feed(state, *([5.0] * 600), 5.96, 5.96)
    # Two longer times in 600 do not change the quantiles; sixty do.
    assert state.load().bound == 6
    feed(state, *([5.0, 5.0, 5.96] * 60))
    assert state.load().bound == 7
    feed(state, *([5.0] * 400))
    assert state.load().bound == 7
    feed(state, *([5.0] * 1600))
    assert state.load().bound == 6


@pytest.mark.parametrize(("before", "after", "count"), [(5.0, 15.0, 5), (15.0, 5.0, 12)])
def test_the_last_of_five_slower_or_twelve_faster_inferences_in_a_row_moves_the_bound(
    before: float, after: float, count: int
) -> None:
    state = fresh()
    feed(state, *([before] * 900), *([after] * (count - 1)))
    assert (state.load().bound, state.load().samples) == (before + 1, 899 + count)
    feed(state, after)
    assert (state.load().bound, state.load().samples) == (after + 1, count)


@pytest.mark.parametrize(
    ("ticks", "count", "samples"), [(5.2, 5, 905), (5.3, 5, 5), (3.6, 12, 912), (3.4, 12, 12)]
)
def test_a_step_is_5_percent_slower_or_30_percent_faster(
    ticks: float, count: int, samples: int
) -> None:
    state = fresh()
    feed(state, *([5.0] * 900), *([ticks] * count))
    assert state.load().samples == samples


def test_one_usual_inference_between_them_and_there_is_no_step() -> None:
    state = fresh()
    feed(state, *([5.0] * 200))
    feed(state, *([5.6] * 4), 5.0, 5.6)
    assert state.load().samples == 206
    feed(state, *([2.0] * 11), 5.0, 2.0)
    assert state.load().samples == 219


def test_lateness_above_one_in_five_hundred_is_answered_with_a_spare_tick() -> None:
    state = fresh()
    feed(state, *([5.0] * 1100))
    feed(state, 5.0, 5.0, late=True)
    assert state.load().bound == 6
    feed(state, 5.0, late=True)
    assert state.load().bound == 7


def test_lateness_while_starting_is_ignored() -> None:
    state = fresh()
    feed(state, *([5.0] * (4 * 6 + 16)), late=True)
    assert state.load().bound == 6
    feed(state, 5.0, 5.0, late=True)
    assert state.load().bound == 7


def test_one_late_inference_is_no_rate() -> None:
    state = fresh()
    feed(state, *([5.0] * 60))
    feed(state, 5.0, late=True)
    feed(state, *([5.0] * 60))
    assert state.load().bound == 6
    feed(state, 5.0, late=True)
    assert state.load().bound == 7


def test_what_processes_take_while_they_start_does_not_outlast_the_start() -> None:
    state = fresh()
    feed(state, 5.0, 5.9, *([5.0] * 38))
    assert state.load().bound == 7
    feed(state, 5.0)
    assert state.load().bound == 6


def test_a_process_more_begins_the_measurement_anew() -> None:
    state = fresh()
    feed(state, *([5.0] * 100), 9.0, 9.0, late=True)
    feed(state, *([5.0] * 20))
    assert state.load().bound == 7
    state.join(6, 1.0)
    assert state.load().samples == 7
    feed(state, *([5.0] * (4 * 7 + 16)), processes=7)
    assert (state.load().bound, state.load().flags) == (6, 7)


@pytest.mark.parametrize(("needed", "bound"), [(16, 20), (15, 15)])
def test_a_drop_by_15_percent_and_a_tick_forgets_the_peak(needed: int, bound: int) -> None:
    state, plan = fresh(), Plan()
    for each in (20, needed):
        _bound(state, plan, each)
    assert plan.bound == bound


def test_damaged_bounds_are_forgotten() -> None:
    state = fresh()
    feed(state, *([5.0] * 600))
    state.bounds[:] = 4000
    feed(state, 5.0)
    assert state.load().bound == 6
    feed(state, *([5.0] * 600))
    assert state.load().bound == 6


def test_one_cycle_of_the_generator() -> None:
    state = fresh()
    feed(state, 5.0)
    run = Process(3, state)
    claim(state, 6, Moment(0.0, 10), TICK)
    assert run.send(Moment(1.0, 10)) == WaitFrame(11)
    assert run.send(Moment(1.0, 10)) == WaitFrame(11), "woken too early: waits again"
    assert run.send(Moment(1.02, 11)) == Infer(11)
    assert run.send(Inferred(11, 0.1, 1.12, 16)) == Deposit(17, 11)
    assert run.send(Moment(1.12, 16)) == Infer(16), "works on at once"


@pytest.mark.parametrize(("ticks_after_due", "late"), [(-1, 0), (0, 1), (1, 1)])
def test_an_action_is_late_once_that_of_its_tick_is_chosen(ticks_after_due: int, late: int) -> None:
    state = fresh(processes=1)
    feed(state, *([2.0] * 25), processes=1)
    flags = state.load().flags
    run = Process(0, state)
    assert run.send(Moment(1.0, 50)) == Infer(50)
    due = 50 + state.load().bound
    run.send(Inferred(50, 2.0 * TICK, 1.04, due + ticks_after_due))
    run.send(Moment(1.05, due + ticks_after_due))
    assert state.load().flags == flags + 1
    assert state.late[flags] == late


@pytest.mark.parametrize(("behind", "bound"), [(0.0, 2), (0.1, 2), (0.2, 3), (0.9, 3)])
def test_a_frame_that_comes_later_in_its_tick_is_acted_on_later(behind: float, bound: int) -> None:
    state = fresh(processes=1)
    run = Process(0, state)
    assert run.send(Moment(1.0, 50)) == Infer(50)
    run.send(Inferred(50, 1.8 * TICK, 1.03, 51, behind * TICK))
    run.send(Moment(1.03, 51))
    assert state.load().bound == bound


def test_a_waiting_process_takes_a_new_ticket_after_a_reset() -> None:
    state = fresh()
    claim(state, 6, Moment(0.0, 500), TICK)
    run = Process(0, state)
    assert run.send(Moment(1.0, 500)) == WaitFrame(501)
    state.reset("adaptive", 1.0, 6)
    assert run.send(Moment(1.0, 2)) == Infer(2)


def test_waiting_processes_keep_their_tickets_when_others_come_and_go() -> None:
    state = fresh()
    feed(state, 2.0)
    runs = [Process(worker, state) for worker in range(6)]
    tickets = [run.send(Moment(1.0, 10)) for run in runs]
    state.join(6, 1.0)
    state.leave(5, 1.0)
    # Their waits end early, and they look at the plan.
    assert [run.send(Moment(1.01, 10)) for run in runs[1:5]] == tickets[1:5]


def test_when_most_processes_leave_the_others_take_their_frames() -> None:
    state = fresh(processes=8)
    feed(state, 0.5, processes=8)
    runs = [Process(worker, state) for worker in range(8)]
    tickets = [run.send(Moment(1.0, 10)) for run in runs]
    assert tickets == [Infer(10), *(WaitFrame(frame) for frame in range(11, 18))]
    for worker in range(6):
        state.leave(worker, 1.0)
    # Their waits end early, and they look at the plan.
    assert runs[7].send(Moment(1.01, 10)) == Infer(10)
    assert runs[6].send(Moment(1.02, 10)) == WaitFrame(11)


def test_an_old_look_of_a_waiting_process_makes_no_ticket_void() -> None:
    """It was stopped before it had the lock, and others have claimed tickets meanwhile."""
    state = fresh()
    claim(state, 6, Moment(0.0, 10), TICK)
    run = Process(0, state)
    assert run.send(Moment(1.0, 10)) == WaitFrame(11)
    claim(state, 6, Moment(10.0, 500), TICK)
    assert run.send(Moment(1.1, 10)) == WaitFrame(11)
    assert state.load().next_frame == 501.0


def test_several_that_were_held_up_before_they_claim_make_no_ticket_void() -> None:
    state = fresh()
    claim(state, 6, Moment(1.0, 10), TICK)
    assert claim(state, 6, Moment(10.0, 500), TICK).frame == 500
    late = [claim(state, 6, Moment(at, 10), TICK).frame for at in (1.1, 1.2, 1.3)]
    assert late == [501, 502, 503]
    assert claim(state, 6, Moment(10.1, 500), TICK).frame == 504


def test_a_damaged_moment_does_not_keep_tickets_far_ahead() -> None:
    state = fresh()
    state.store(Plan(epoch=1e9, next_frame=10_000.0))
    assert claim(state, 6, Moment(1.0, 3), TICK).frame == 3


def test_a_process_that_was_held_up_acts_on_the_newest_frame() -> None:
    state = fresh()
    feed(state, 5.0)
    run = Process(0, state)
    claim(state, 6, Moment(0.0, 10), TICK)
    assert run.send(Moment(1.0, 10)) == WaitFrame(11)
    assert run.send(Moment(1.5, 35)) == Infer(35)
    assert run.send(Inferred(35, 5 * TICK, 1.6, 40)) == Deposit(41, 35)


def test_one_that_has_waited_long_for_the_lock_acts_on_the_newest_frame() -> None:
    state = fresh(processes=1)
    feed(state, 5.0, processes=1)
    newest = 50

    @contextmanager
    def taken() -> Iterator[None]:
        # Another process was stopped while it held the lock, so nobody claimed a ticket meanwhile.
        nonlocal newest
        newest = 100
        yield

    run = adaptive(0, state, taken(), TICK)
    asked = next(run)
    while not isinstance(asked, Infer):
        asked = run.send(Moment(newest * TICK, newest))
    assert asked == Infer(100)
    assert run.send(Inferred(100, 5 * TICK, 105 * TICK, 105)) == Deposit(106, 100)


def test_a_wrong_answer_is_refused() -> None:
    run = Process(0, fresh())
    assert run.send(Moment(0.0, 0)) == Infer(0)
    with pytest.raises(TypeError, match="Inferred"):
        run.send(Moment(0.0, 0))
