"""Who takes part in staggering: brought up to date with the processes that really act.

Why it is correct. The staggering state has one writer at a time, whoever holds the claim lock. The
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
    """Let exactly the processes that act take part; while there is none, whoever did before.

    Args:
        world: the shared memory.
        children: the inference processes.
        desired: names the algorithm and the number of processes.
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
    """The learners that take turns: a dead one loses its turn at once."""
    running = (child.index for child in learners if child.state is State.RUNNING)
    return sorted(index for index in running if index < desired.learning.processes)
