"""The precision in which all learners compute: measured by the first of them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from rtagent.config import LEARNING_PRECISIONS
from rtagent.learning.precision import LossScale
from rtagent.learning.replay.sequences import blank
from rtagent.learning.shared_update import SharedUpdate, loss_scale_of
from rtagent.memory.process_metrics import LearnerRecord
from rtagent.memory.turns import TurnTaker

if TYPE_CHECKING:
    from rtagent.processes.worker import WorkerContext


class AgreedPrecision:
    """Lets one learner choose the precision for all, or take over the choice of another one.

    Args:
        context: of the worker process; its record shows precision and loss scale.
        update: the update whose precision is set.
        turns: give the apply lock, under which the precision is chosen.
    """

    def __init__(
        self, context: WorkerContext[LearnerRecord], update: SharedUpdate, turns: TurnTaker
    ) -> None:
        self._context, self._update, self._turns = context, update, turns
        self._agreed = False

    def follow(self) -> None:
        """Compute in the precision that has been chosen, if any has."""
        chosen, algorithm = self._update.state.precision.chosen, self._update.algorithm
        if chosen and self._is_auto():
            algorithm.precision = LEARNING_PRECISIONS[chosen - 1]
        self._context.record.precision = 1 + LEARNING_PRECISIONS.index(algorithm.precision)
        self.note_scale(loss_scale_of(self._update.progress))

    def agree(self, size: int) -> None:
        """Before the first update: measure which precision is fastest, unless another learner has.

        Args:
            size: transitions of the update.
        """
        if self._agreed:
            return
        with self._turns.hold():
            if self._is_auto() and not self._update.state.precision.chosen:
                self._choose(size)
        self.follow()
        self._agreed = True

    def note_scale(self, scale: LossScale) -> None:
        """Show the loss scale in the metrics."""
        scaled = self._update.algorithm.precision == "float16"
        self._context.record.loss_scale = scale.value if scaled else 0.0

    def _is_auto(self) -> bool:
        return self._context.desired.learning.precision == "auto"

    def _choose(self, size: int) -> None:
        """Measure which precision is the fastest, and choose it for all learners."""
        learning = self._context.desired.learning
        measured = self._update.measure_precisions(
            partial(blank, self._context.blueprint, learning), size, self._context.beat,
        )
        self._update.state.precision.chosen = 1 + LEARNING_PRECISIONS.index(measured.chosen)
        milliseconds = {each: round(1e3 * s, 3) for each, s in measured.seconds.items()}
        self._context.event(
            "precision", chosen=measured.chosen, batch_size=measured.batch_size, ms=milliseconds
        )
