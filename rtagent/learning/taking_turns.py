"""One of several learners: whether it is to go on, and its way into the turns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rtagent.memory.process_metrics import LearnerRecord
from rtagent.memory.turns import TurnTaker, lease_s

if TYPE_CHECKING:
    from rtagent.processes.worker import WorkerContext


def goes_on(context: WorkerContext[LearnerRecord]) -> bool:
    """Update the heartbeat; returns whether this learner, or this gateway, is still wanted."""
    context.beat()
    return not context.stopping and context.index < context.desired.learning.processes


def turn_taker(context: WorkerContext[LearnerRecord]) -> TurnTaker:
    """This learner's way into the turns, among those that are not writing a checkpoint."""
    learners = context.world.metrics.learners
    return TurnTaker(
        context.world.turns, context.index, context.clock,
        ring=lambda: [
            index for index in context.desired.learner_ring if not learners[index].writing
        ],
        order=lambda: context.desired.learning.order,
        lease_s=lambda index: lease_s(context.desired.learning.lease_s, learners[index].update_ns),
        progress_ns=lambda index: learners[index].heartbeat_ns, beat=lambda: goes_on(context),
    )
