"""Baselines for staggering: no spacing at all, and a single process.

Sequential interaction of Riemer et al. is one process that acts and learns by turns (Fig. 1a):
either an update comes between the frame and the action that answers it, or, so that the action does
not wait for it (Travnik et al., 2018), between the action and the next frame.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import partial
from typing import Literal

from rtagent.staggering.instructions import (
    Algorithm,
    Deposit,
    Factory,
    Learn,
    Now,
    WaitFrame,
    WaitUntil,
    infer,
    moment,
)
from rtagent.staggering.state import StaggerState


def _at_once(
    name: str, update: Literal["beside", "before", "after"], worker: int, state: StaggerState,
    lock: AbstractContextManager[object], tick_seconds: float,
) -> Algorithm:
    at = yield from moment(Now())
    acted_on = -1
    while (members := state.membership).algorithm == name:
        if worker not in members.ring:
            at = yield from moment(WaitUntil(at.now + tick_seconds))
            continue
        if at.newest <= acted_on:
            at = yield from moment(WaitFrame(acted_on + 1))
            if at.newest <= acted_on:
                # The driver's wait has ended early, or the frame numbers were restarted.
                acted_on = min(acted_on, at.newest)
                continue
        seen = None
        if update == "before":
            seen = at.newest
            yield from moment(Learn())
        answer = yield from infer(seen)
        acted_on = answer.frame
        at = yield from moment(Deposit(answer.chosen + 1, answer.frame))
        if update == "after":
            at = yield from moment(Learn())


unstaggered: Factory = partial(_at_once, "unstaggered", "beside")
"""Each process acts on the newest frame whenever it is free."""
sequential: Factory = partial(_at_once, "sequential", "beside")
"""One process acts on the newest frame whenever it is free, and learning goes on beside it:
inaction is 1 - 1/x (Riemer et al., Remark 1).

`StaggerState.reset` forces N to 1, for this algorithm and the next two.
"""
sequential_infer_learn: Factory = partial(_at_once, "sequential-infer-learn", "after")
"""One process acts on the newest frame, then waits for an update, then looks again."""
sequential_learn_infer: Factory = partial(_at_once, "sequential-learn-infer", "before")
"""One process sees the newest frame, waits for an update, then acts on what it saw."""
