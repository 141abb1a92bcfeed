"""Learners of a virtual run: the live learner, whose gradients are computed and applied apart.

A gradient is computed on the weights that are there when it begins, and applied, in turn, when it
would be ready: so its staleness is that of a live run. A learner that finds nothing to do looks
again as soon as a live one would.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from rtagent.learning.learner import IDLE_S, Computed, Learner
from rtagent.memory.process_metrics import LearnerRecord
from rtagent.processes.worker import WorkerContext
from rtagent.staggering.virtual_workers import VirtualWorkers

UpdateTime = Callable[[int], float]
"""Seconds of an update of so many transitions."""


class VirtualLearners:
    """All learners of a run.

    Args:
        contexts: one of each learner, with the clock of the run.
        workers: keep the time.
        update_s: seconds of an update.
    """

    def __init__(
        self, contexts: Sequence[WorkerContext[LearnerRecord]], workers: VirtualWorkers,
        update_s: UpdateTime,
    ) -> None:
        self._contexts, self._workers, self._update_s = contexts, workers, update_s
        self._learners = [Learner(context) for context in contexts]
        self._ready: dict[int, Computed] = {}

    def begin(self) -> None:
        """Take over the weights; where acting does not wait for learning, learn from now on."""
        for index, learner in enumerate(self._learners):
            learner.begin()
            if not self._contexts[index].desired.inference.sequential:
                self._look_again(index)

    def learn(self) -> float:
        """Begin an update for which acting waits; its seconds, 0 if there is none to make."""
        computed = self._learners[0].compute() if self._learners else None
        if computed is None:
            return 0.0
        seconds = self._update_s(computed.gradient.samples)
        self._at(seconds, partial(self._learners[0].apply, computed))
        return seconds

    def save(self) -> None:
        """Write a checkpoint; there is a learner."""
        self._learners[0].new_checkpoint_writer().write()

    def _look_again(self, index: int) -> None:
        computed = self._learners[index].compute()
        if computed is None:
            self._at(IDLE_S, partial(self._look_again, index))
        else:
            seconds = self._update_s(computed.gradient.samples)
            self._at(seconds, partial(self._finish, index, computed))

    def _finish(self, index: int, computed: Computed) -> None:
        """Apply a gradient in its turn, and those that have waited for it."""
        self._ready[index] = computed
        while (index := self._next()) >= 0:
            self._learners[index].apply(self._ready.pop(index))
            self._at(0.0, partial(self._look_again, index))

    def _next(self) -> int:
        """The learner whose gradient is applied now; -1 if there is none."""
        context = self._contexts[0]
        ring, turns = context.desired.learner_ring, context.world.turns
        in_turn = context.desired.learning.order == "round-robin"
        for index in self._ready:
            if not in_turn or turns.is_mine(index, ring):
                return index
        return -1

    def _at(self, seconds: float, call: Callable[[], object]) -> None:
        self._workers.call_at(self._workers.now + seconds, call)
