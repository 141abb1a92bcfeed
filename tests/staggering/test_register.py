"""What all staggering algorithms have in common."""

from __future__ import annotations

from typing import get_args

import pytest

from rtagent.config.section import Algorithm
from rtagent.staggering.instructions import Infer, Inferred, Moment, WaitUntil
from rtagent.staggering.register import ALGORITHMS, LIVE
from rtagent.staggering.state import Plan
from tests.staggering.begun import TICK, begun, fresh

EACH = pytest.mark.parametrize("algorithm", ALGORITHMS)


def test_what_can_be_configured_is_there() -> None:
    assert set(LIVE) < set(get_args(Algorithm)) < set(ALGORITHMS)


@EACH
def test_a_process_outside_the_ring_looks_again_and_ends_with_its_algorithm(algorithm: str) -> None:
    state = fresh(algorithm, 4)
    run = begun(ALGORITHMS[algorithm], 5, state)
    assert run.send(Moment(1.0, 50)) == WaitUntil(1.0 + TICK)
    state.reset("maximum-time" if algorithm == "adaptive" else "adaptive", 1.0, 4)
    with pytest.raises(StopIteration):
        run.send(Moment(1.02, 51))


class Watched:
    """A claim lock that knows whether it is held."""

    def __init__(self) -> None:
        self.held, self.entered = False, 0

    def __enter__(self) -> None:
        assert not self.held
        self.held, self.entered = True, self.entered + 1

    def __exit__(self, *_: object) -> None:
        self.held = False


@EACH
def test_the_lock_is_held_for_every_plan_and_never_across_an_instruction(algorithm: str) -> None:
    lock, state = Watched(), fresh(algorithm, 1)
    load = state.load

    def guarded() -> Plan:
        assert lock.held
        return load()

    state.load = guarded  # type: ignore[method-assign]
    run = ALGORITHMS[algorithm](0, state, lock, TICK)
    asked = next(run)
    at = Moment(1.0, 50)
    for _ in range(60):
        assert not lock.held
        if isinstance(asked, Infer):
            at = Moment(at.now + 5 * TICK, at.newest + 5)
            asked = run.send(Inferred(at.newest - 5, 5 * TICK, at.now, at.newest))
        else:
            # Waits end early every other time.
            at = Moment(at.now + TICK / 2, int((at.now + TICK / 2) / TICK))
            asked = run.send(at)
    assert lock.entered > 5 or algorithm.startswith(("unstaggered", "sequential"))
