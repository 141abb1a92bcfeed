"""What staggering is compared with: no spacing at all, and one process alone."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import partial

from rtagent.staggering.instructions import (
    Algorithm,
    Deposit,
    Factory,
    Now,
    WaitFrame,
    WaitUntil,
    infer,
    moment,
)
from rtagent.staggering.state import StaggerState


def _at_once(
    name: str, worker: int, state: StaggerState, lock: AbstractContextManager[object],
    tick_seconds: float,
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
                # The driver was in a hurry, or the frame numbers were restarted.
                acted_on = at.newest - 1
                continue
        answer = yield from infer(None)
        acted_on = answer.frame
        at = yield from moment(Deposit(answer.newest + 1, answer.frame))


unstaggered: Factory = partial(_at_once, "unstaggered")
"""Everybody acts on the newest frame at once, whenever free."""
sequential: Factory = partial(_at_once, "sequential")
"""One process acts on the newest frame whenever free: inaction 1 - 1/x (Riemer et al., Remark 1).

`StaggerState.reset` forces N to 1.
"""
