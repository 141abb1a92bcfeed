"""Keeps the members of the staggering up to date with the processes that act.

Why it is correct. The staggering state has one writer at a time, the holder of the claim lock. The
supervisor only tries that lock: its holder may be a stopped process that only the supervisor can
kill, and the next step comes soon.
"""

from __future__ import annotations

from collections.abc import Iterable

from rtagent.memory.control import DesiredState
from rtagent.memory.world import World
from rtagent.supervisor.child import Child, State


def update_members(
    world: World, children: Iterable[Child], desired: DesiredState, now: float
) -> None:
    """Make the processes that act the members; while there are none, change no member.

    Args:
        children: the inference processes.
        now: seconds.
    """
    acting = {child.index for child in children if child.state is State.RUNNING}
    stagger, lock = world.stagger, world.claim_lock
    members = stagger.membership
    same_algorithm = members.algorithm == desired.inference.algorithm
    if same_algorithm and (not acting or set(members.ring) == acting):
        return
    if not lock.try_enter():
        return
    try:
        if not same_algorithm:
            stagger.reset(desired.inference.algorithm, now, desired.processes)
        for worker in sorted(acting):
            stagger.join(worker, now)
        for worker in set(stagger.membership.ring) - acting:
            stagger.leave(worker, now)
    finally:
        lock.leave()


def learner_ring(learners: Iterable[Child], desired: DesiredState) -> list[int]:
    """The learners that take turns. A dead learner loses its turn at once."""
    running = (child.index for child in learners if child.state is State.RUNNING)
    return sorted(index for index in running if index < desired.learning.processes)
