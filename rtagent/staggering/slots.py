"""Absolute slots: Algorithms 1 and 2 of Riemer et al., made robust against oversleeping.

The published pseudocode spaces processes with relative sleeps, so every oversleep shifts a process
for good. Here slot (c, i) stands at epoch + (c N + i) T/N for ever, whichever process was late
before, and a process always returns to its own slots. `maximum_time` is Algorithm 1 on slots,
`expected_time` is Algorithm 2.

The plan (epoch, T, base) is read and written under the claim lock only; see `state`.
"""

from __future__ import annotations

import math
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
from rtagent.staggering.state import Membership, Plan, StaggerState, anchor

Revise = Callable[[Plan, StaggerState, int], float | None]
"""(plan, state, inference time in ns, already recorded) -> a new T in seconds, or None."""

_FAR_AHEAD = 1.0
"""An epoch that lies further in the future than one T and so many seconds is damaged."""


def slot_after(plan: Plan, position: int, processes: int, earliest: float, used: float) -> float:
    """The first slot of a ring position that is not before `earliest` and not used yet, seconds.

    Args:
        plan: gives epoch, T and base.
        position: place in the ring.
        processes: N.
        earliest: seconds.
        used: seconds; this process's last slot, -inf if none.
    """
    spacing = plan.period / processes
    own = plan.epoch + ((position - plan.base) % processes) * spacing
    behind = max(earliest, used + spacing / 2.0) - own
    return own + max(0, math.ceil(behind / plan.period)) * plan.period


def _slotted(
    name: str, revise: Revise, hold: bool, worker: int, state: StaggerState,
    lock: AbstractContextManager[object], tick_seconds: float,
) -> Algorithm:
    used, settled = -math.inf, -1
    at = yield from moment(Now())
    while (members := state.membership).algorithm == name:
        if worker not in members.ring:
            at = yield from moment(WaitUntil(at.now + tick_seconds))
            continue
        with lock:
            plan = _ready(state, at.now, tick_seconds)
        tolerance = _tolerance(plan, members) if settled == members.changes else 0.0
        position = members.ring.index(worker)
        slot = slot_after(plan, position, members.processes, at.now - tolerance, used)
        if at.now < slot:
            at = yield from moment(WaitUntil(slot))
            with lock:
                changed = state.load().generation != plan.generation
            if changed:
                continue
        used, settled = slot, members.changes
        answer = yield from infer(None)
        with lock:
            plan = _complete(state, revise, answer.tau, answer.now, tick_seconds)
        at = yield from moment(Now())
        while hold and at.now < slot + plan.period and state.algorithm == name:
            at = yield from moment(WaitUntil(slot + plan.period))
            with lock:
                plan = state.load()
        at = yield from moment(Deposit(at.newest + 1, answer.frame))


def _tolerance(plan: Plan, members: Membership) -> float:
    """How late a slot may still be taken, in seconds.

    0 while T settles, and (see the caller) for the first slot of a process in this ring: where
    inference times do not vary, a process can never catch up what it was late at first.
    """
    if plan.samples < 2 * members.processes:
        return 0.0
    return max(plan.period / (2 * members.processes), plan.period / 20.0)


def _ready(state: StaggerState, now: float, tick_seconds: float) -> Plan:
    """The plan, with T and epoch repaired if they cannot be used."""
    plan = state.load()
    unusable = plan.period <= 0.0
    if unusable:
        plan.period = tick_seconds
    if plan.epoch > now + plan.period + _FAR_AHEAD:
        plan.epoch = now
        unusable = True
    if unusable:
        plan.generation += 1
        state.store(plan)
    return plan


def _complete(
    state: StaggerState, revise: Revise, tau: float, now: float, tick_seconds: float
) -> Plan:
    """Account for an inference of `tau` seconds that ended at `now`."""
    plan = _ready(state, now, tick_seconds)
    ns = state.record(plan, tau)
    period = revise(plan, state, ns)
    if period is not None:
        anchor(plan, now, period, state.processes)
    state.store(plan)
    return plan


def _longest(plan: Plan, state: StaggerState, ns: int) -> float | None:
    """T' = max(T, tau); before the first sample T is only a guess."""
    tau = ns * 1e-9
    return tau if tau > plan.period or plan.samples == 1 else None


def _mean(plan: Plan, state: StaggerState, ns: int) -> float | None:
    """T' = mean + min(sd, 0.02 mean), if that differs from T by more than 1 %."""
    mean = plan.total_ns * 1e-9 / plan.held
    deviation = float(state.tau_ns[: plan.held].std()) * 1e-9
    period = mean + min(deviation, 0.02 * mean)
    return period if abs(period - plan.period) > 0.01 * plan.period else None


maximum_time: Factory = partial(_slotted, "maximum-time", _longest, True)
"""T is the longest inference time seen (Riemer et al., Algorithm 1).

An action registers T after its slot, so the spacing is T/N exactly once T has settled.
Needs ceil(tau_max / tau_M) processes.
"""
expected_time: Factory = partial(_slotted, "expected-time", _mean, False)
"""T is the mean inference time (Riemer et al., Algorithm 2).

An action registers as soon as it is computed. Works where the spread of the inference time is
well below a tick.
"""
