"""Set-up for tests of the algorithms."""

from __future__ import annotations

from contextlib import nullcontext

from rtagent.staggering.instructions import Algorithm, Factory, Now
from rtagent.staggering.state import StaggerState

TICK = 0.02


def fresh(algorithm: str = "adaptive", processes: int = 6) -> StaggerState:
    """A state with an algorithm and processes, and no measurements."""
    state = StaggerState(bytearray(StaggerState.nbytes()))
    state.reset(algorithm, 0.0, processes)
    return state


def begun(factory: Factory, worker: int, state: StaggerState) -> Algorithm:
    """An algorithm that has asked for the time, and waits for the reply."""
    run = factory(worker, state, nullcontext(), TICK)
    assert next(run) == Now()
    return run
