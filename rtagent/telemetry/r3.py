"""The figures of R3: the running horizon, and the memory of replay and batches."""

from __future__ import annotations

import math

from rtagent.clock import NANO
from rtagent.memory.world import World
from rtagent.telemetry.figures import learning


def replay_figures(world: World) -> learning.Replay:
    """What the replay holds, and the memory that it may use."""
    frames, ledger = world.frames, world.ledger
    per_tick = frames.slot_bytes + ledger.dtype.itemsize
    newest = ledger.newest
    size = max(0, min(newest + 1, ledger.capacity, newest + 1 - ledger.floor))
    limit = world.horizon.reservations.ticks_limit
    return learning.Replay(
        capacity=ledger.capacity, limit=limit if limit >= 0 else ledger.capacity, size=size,
        bytes=size * per_tick, bytes_per_transition=per_tick,
        memory_budget_bytes=_bytes(world.horizon.reservations.budget_bytes),
    )


def r3_figures(world: World) -> learning.R3:
    """The running horizon, what memory is reserved, and the outcomes so far."""
    desired, horizon = world.control.desired, world.horizon.read()
    reserved = world.horizon.reservations
    runs = horizon.mode > 0 and horizon.running > 0
    known = runs or horizon.number > 0
    elapsed_s = horizon.elapsed_ns / NANO
    return learning.R3(
        mode=desired.r3.mode, deadline_s=desired.r3.deadline_s,
        elapsed_s=elapsed_s if runs else None, data_budget=desired.r3.data_budget,
        consumed=horizon.consumed if runs else None,
        time_ratio=elapsed_s / horizon.deadline_s if runs else None,
        data_ratio=horizon.consumed / horizon.data_budget if runs else None,
        alpha=_ratio(reserved.alpha), beta=_ratio(reserved.beta),
        batch_memory_bytes=_bytes(reserved.batch_bytes),
        replay_memory_bytes=_bytes(reserved.replay_bytes),
        horizons=_outcomes(horizon.met, horizon.missed, known),
        episode_deadlines=_outcomes(horizon.episode_met, horizon.episode_missed, known),
        early_exits=horizon.early_exits if known else None, batch_cap=horizon.batch_cap or None,
        batch_base_bytes=horizon.base_bytes or None,
        ticks_limit=reserved.ticks_limit if reserved.ticks_limit >= 0 else None,
        used_bytes=_bytes(reserved.used_bytes), baseline_bytes=_bytes(reserved.baseline_bytes),
        memory_budget_bytes=_bytes(reserved.budget_bytes),
        oom_events=sum(each.out_of_memory for each in world.metrics.learners),
        pressure_events=reserved.pressure_events, decisions=world.horizon.count,
    )


def _outcomes(met: int, missed: int, known: bool) -> learning.Outcomes:
    return learning.Outcomes(met if known else None, missed if known else None)


def _bytes(value: int) -> int | None:
    return value if value >= 0 else None


def _ratio(value: float) -> float | None:
    return value if math.isfinite(value) else None
