"""Adaptive staggering: frame tickets, and a delay bound from quantiles of the inference time.

Instead of spacing processes in time, each free process claims the next frame that needs an action
and promises the action for D ticks later. No process sleeps to keep a distance, so a slow inference
delays only its own action. D is fixed when the ticket is claimed, so actions claimed in order are
due in order, unless D has become smaller in between.

The action of a tick is chosen when the tick begins, and its frame is there only after the step. So
D covers the step, too: without it, actions would come about when those of their ticks are chosen.

The plan and its windows are read and written under the claim lock only; see `state`.
"""

from __future__ import annotations

import math
from collections import deque
from contextlib import AbstractContextManager
from dataclasses import dataclass
from statistics import median

import numpy as np

from rtagent.staggering.instructions import (
    Algorithm,
    Deposit,
    Moment,
    Now,
    WaitFrame,
    WaitUntil,
    infer,
    moment,
)
from rtagent.staggering.state import (
    BOUNDS,
    MAX_BOUND,
    MAX_SECONDS,
    WINDOW,
    Plan,
    StaggerState,
)

SLOWER_IN_A_ROW = 5
"""So many inference times above 1.05 T in a row mean that the policy has become slower."""
FASTER_IN_A_ROW = 12
"""So many inference times below 0.7 of the mean in a row mean that it has become faster."""
ACCEPTED_LATE_RATE = 0.002
"""Share of inferences that may be late; a single late one is accepted in any case."""
MARGIN = 0.05
"""Ticks between the expected end of an inference and the tick that uses it."""
BEHINDS = 16
"""Newest frames from which a process takes the usual time from a tick to its frame."""


@dataclass(frozen=True, slots=True)
class Ticket:
    """A promise to act on a frame.

    Attributes:
        frame: the frame to act on.
        due: the tick the action is meant for.
    """

    frame: int
    due: int


def adaptive(
    worker: int, state: StaggerState, lock: AbstractContextManager[object], tick_seconds: float
) -> Algorithm:
    """Staggering with frame tickets, see the module; for the arguments see `Factory`.

    Needs ceil(mean / tau_M) processes and a few more, also where inference times have heavy tails.
    """
    at = yield from moment(Now())
    behind: deque[float] = deque(maxlen=BEHINDS)
    while (members := state.membership).algorithm == "adaptive":
        if worker not in members.ring:
            at = yield from moment(WaitUntil(at.now + tick_seconds))
            continue
        with lock:
            ticket = claim(state, members.processes, at, tick_seconds)
        # The lock may have been waited for.
        at = yield from moment(Now())
        valid = True
        while at.newest < ticket.frame and valid:
            at = yield from moment(WaitFrame(ticket.frame))
            if at.newest < ticket.frame:
                with lock:
                    valid = holds(state, ticket, at, tick_seconds)
        if not valid:
            continue
        if at.newest >= ticket.due:
            # Held up until the promised tick was over, a process acts on the newest frame.
            ticket = Ticket(at.newest, at.newest + ticket.due - ticket.frame)
        answer = yield from infer(ticket.frame)
        late = answer.chosen >= ticket.due
        # Deposited before the inference is accounted for, which takes a lock.
        at = yield from moment(Deposit(ticket.due, answer.frame))
        behind.append(answer.behind)
        with lock:
            complete(state, members.processes, answer.tau, late, tick_seconds, median(behind))


def claim(state: StaggerState, processes: int, at: Moment, tick_seconds: float) -> Ticket:
    """Take the next frame that needs an action; the lock is held.

    `at` is from before the lock was taken: since then the process may have been stopped.
    """
    plan = state.load()
    gap = _gap(plan, processes, tick_seconds)
    if not _held_up(plan, at):
        if _too_far_ahead(plan, processes, gap, at):
            plan.next_frame = float(at.newest)
        plan.epoch = at.now
    frame = max(math.ceil(plan.next_frame), at.newest, 0)
    plan.next_frame = (plan.next_frame if frame - plan.next_frame < 1.0 else frame) + gap
    state.store(plan)
    return Ticket(frame, frame + plan.bound)


def holds(state: StaggerState, ticket: Ticket, at: Moment, tick_seconds: float) -> bool:
    """Whether a ticket that is waited for is still good; the lock is held.

    `at` is from before the lock was taken.
    """
    plan, processes = state.load(), state.processes
    gap = _gap(plan, processes, tick_seconds)
    if _too_far_ahead(plan, processes, gap, at) and not _held_up(plan, at):
        plan.next_frame, plan.epoch = float(at.newest), at.now
        state.store(plan)
    # Else the plan has begun anew, and knows nothing of this ticket.
    return plan.next_frame >= ticket.frame


def _gap(plan: Plan, processes: int, tick_seconds: float) -> float:
    """Ticks between two tickets."""
    if not plan.held:
        return 1.0
    return max(1.0, plan.total_ns * 1e-9 / plan.held / tick_seconds / processes)


def _too_far_ahead(plan: Plan, processes: int, gap: float, at: Moment) -> bool:
    """Whether more tickets are given than there are processes.

    Then processes with tickets have left, or the frame numbers were restarted.
    """
    return plan.next_frame > at.newest + (processes + 1) * gap + 2.0


def _held_up(plan: Plan, at: Moment) -> bool:
    """Whether another process has looked since `at`, which says nothing about its tickets."""
    return 0.0 < plan.epoch - at.now < MAX_SECONDS


def settling(processes: int) -> int:
    """Inferences after a start, a step change or a join, before lateness is counted."""
    return 4 * processes + 16


def complete(
    state: StaggerState, processes: int, tau: float, late: bool, tick_seconds: float,
    behind: float = 0.0,
) -> None:
    """Account for an inference of `tau` seconds; the claim lock is held.

    `late` says whether the action of the tick that it was promised for had been chosen. A frame
    comes `behind` seconds after its tick is due, and so the inference begins as much later.
    """
    plan = state.load()
    _notice_steps(state, plan, tau)
    settled = plan.samples - settling(processes)
    if settled == 1:
        # Processes that start hold each other up: the bounds of that time are forgotten.
        plan.bounds = 0
    held = plan.held
    middle, high = (held - 1) // 2, math.ceil(0.95 * (held - 1))
    ranked = np.partition(state.tau_ns[:held], (middle, high))
    q50, q95 = int(ranked[middle]), int(ranked[high])
    plan.period = (q50 + 2 * (q95 - q50)) * 1e-9
    if settled > 0:
        state.late[plan.flags % WINDOW] = late
        plan.flags += 1
    flags = min(plan.flags, WINDOW)
    lates = int(np.count_nonzero(state.late[:flags]))
    spare = 1 if lates > max(1.0, ACCEPTED_LATE_RATE * flags) else 0
    _bound(state, plan, math.ceil((plan.period + behind) / tick_seconds + MARGIN) + spare)
    state.store(plan)


def _notice_steps(state: StaggerState, plan: Plan, tau: float) -> None:
    """Record `tau`; when it confirms a step change, forget the inference times before it."""
    usual_ns = plan.total_ns / plan.held if plan.held else 0.0
    ns = state.record(plan, tau)
    plan.above = plan.above + 1 if 0.0 < 1.05 * plan.period * 1e9 < ns else 0
    plan.below = plan.below + 1 if ns < 0.7 * usual_ns else 0
    if plan.above >= SLOWER_IN_A_ROW:
        state.keep_last(plan, SLOWER_IN_A_ROW)
    elif plan.below >= FASTER_IN_A_ROW:
        state.keep_last(plan, FASTER_IN_A_ROW)


def _bound(state: StaggerState, plan: Plan, needed: int) -> None:
    """Set D to the peak of the bounds that the last samples needed.

    If much less is needed now, by 15 % and a tick, the older bounds are forgotten. Since the peak
    never exceeds both the last D and what is needed now, an array that says otherwise was damaged,
    and is forgotten too.
    """
    needed = min(needed, MAX_BOUND)
    if needed < 0.85 * plan.bound - 1.0:
        plan.bounds = 0
    state.bounds[plan.bounds % BOUNDS] = needed
    plan.bounds += 1
    peak = int(np.maximum.reduce(state.bounds[: min(plan.bounds, BOUNDS)]))
    if peak > max(plan.bound, needed):
        state.bounds[0], plan.bounds, peak = needed, 1, needed
    plan.bound = peak
