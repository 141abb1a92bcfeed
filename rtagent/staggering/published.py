"""Algorithms 1 and 2 of Riemer et al. as printed in Appendix D, for comparison only.

One departure: line 13 of Algorithm 1 (register the action) is read as standing outside the `else`.
Taken to the letter, an action whose inference time ties or sets the maximum is dropped, and with a
constant inference time nothing ever acts. `dist` is not defined in the paper; it is read as the
directed distance (num - threadnum) mod N, without which no spacing results. An action is registered
for the next tick. All other defects are kept: a delay is zeroed after the sleep, so what other
processes add meanwhile is lost; the sleep is for the maximum before this inference; a process that
overslept stays late; one outlier raises the maximum for ever; and line 15 of Algorithm 2 does the
opposite of its comment.

`Plan.period` is the estimate, `StaggerState.delays` are the accumulated delays.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

from rtagent.staggering.instructions import (
    Algorithm,
    Deposit,
    Factory,
    Now,
    WaitUntil,
    infer,
    moment,
)
from rtagent.staggering.state import MAX_SECONDS, StaggerState

EPSILON = 1e-6
"""The paper's epsilon, seconds: spreads the first inferences."""

Account = Callable[[StaggerState, int, float], float]
"""(state, worker, tau) -> seconds to sleep before the action is registered."""


def _printed(
    name: str, account: Account, worker: int, state: StaggerState,
    lock: AbstractContextManager[object], tick_seconds: float,
) -> Algorithm:
    at = yield from moment(Now())
    with lock:
        state.delays[worker] = EPSILON * worker / state.processes
    while (members := state.membership).algorithm == name:
        if worker not in members.ring:
            at = yield from moment(WaitUntil(at.now + tick_seconds))
            continue
        delay = float(state.delays[worker])
        if 0.0 < delay < MAX_SECONDS:
            yield from moment(WaitUntil(at.now + delay))
        with lock:
            state.delays[worker] = 0.0
        answer = yield from infer(None)
        with lock:
            remaining = account(state, worker, answer.tau)
        at = yield from moment(WaitUntil(answer.now + remaining))
        at = yield from moment(Deposit(at.newest + 1, answer.frame))


def _account_maximum(state: StaggerState, worker: int, tau: float) -> float:
    """Lines 6 to 12 of Algorithm 1."""
    plan = state.load()
    if tau < plan.period:
        return plan.period - tau
    _delay_others(state, worker, (tau - plan.period) / state.processes)
    plan.period = tau
    state.store(plan)
    return 0.0


def _account_expected(state: StaggerState, worker: int, tau: float) -> float:
    """Lines 6 to 15 of Algorithm 2."""
    plan = state.load()
    plan.actions += 1
    plan.tau_total += tau
    estimate = plan.tau_total / plan.actions
    change = estimate - plan.period
    share = abs(change) / state.processes
    _delay_others(state, worker, share if change >= 0.0 else (state.processes - 1) * share)
    plan.period = estimate
    state.store(plan)
    return 0.0


def _delay_others(state: StaggerState, worker: int, share: float) -> None:
    """delay[num] += dist(num, threadnum) * share, for every other process."""
    ring = state.membership.ring
    place = ring.index(worker) if worker in ring else 0
    for distance in range(1, len(ring)):
        state.delays[ring[(place + distance) % len(ring)]] += distance * share


published_maximum_time: Factory = partial(_printed, "published-maximum-time", _account_maximum)
"""Algorithm 1 as printed (see the module)."""
published_expected_time: Factory = partial(_printed, "published-expected-time", _account_expected)
"""Algorithm 2 as printed (see the module)."""
