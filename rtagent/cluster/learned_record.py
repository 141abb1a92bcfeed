"""Counts the learner's updates in the gateway's record, as a learner in the daemon does itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from rtagent.clock import NANO
from rtagent.cluster.calls import Learned
from rtagent.config import LEARNING_PRECISIONS
from rtagent.memory.learner_state import Progress
from rtagent.memory.process_metrics import LearnerRecord


class LearnedRecord:
    """Counts what the learner has learned, by the answers to the shares of the gateway's node.

    Args:
        event: `WorkerContext.event`; reports updates that were skipped, once for several in a row.
    """

    def __init__(self, record: LearnerRecord, event: Callable[..., object]) -> None:
        self._record, self._event = record, event
        self._bad_burst = False
        self._progress: tuple[int, int] | None = None

    def begin(self, progress: Progress) -> Progress:
        """Start from the progress that a learner without a state is given; returns it, with the
        transitions counted so far if it has none, as where only weights are known."""
        samples = progress.samples or int(self._record.samples_consumed)
        self._progress = None
        self._note_progress(progress.updates, samples)
        return replace(progress, samples=samples)

    def note(self, learned: Learned, now: float) -> None:
        """Count an update."""
        record = self._record
        record.precision = 1 + LEARNING_PRECISIONS.index(learned.precision)
        record.loss_scale = learned.loss_scale
        grown = self._note_progress(learned.updates, learned.samples)
        # Other nodes alone had shares in some; how many is unknown where a learner begins anew.
        record.applied += int(learned.outcome == "applied") if grown is None else grown
        if learned.outcome == "overflowed":
            record.overflows += 1
        elif learned.outcome == "skipped":
            record.skipped += 1
            if not self._bad_burst:
                self._event(
                    "update_skipped", loss=repr(learned.loss), gradient_norm=repr(learned.norm),
                    updates=learned.updates,
                )
            self._bad_burst = True
        else:
            self._bad_burst = False
            record.loss = learned.loss
            record.applied_ns, record.update_ns = int(now * NANO), int(learned.seconds * NANO)

    def _note_progress(self, updates: int, samples: int) -> int | None:
        """Count how the learner's numbers grow; both fall if it restores an older state.

        Returns:
            The updates since the last time; None if that is not known.
        """
        record, before = self._record, self._progress
        self._progress = updates, samples
        if before is None:
            record.updates = max(record.updates, updates)
            record.samples_consumed = max(record.samples_consumed, samples)
            return None
        record.updates += max(0, updates - before[0])
        record.samples_consumed += max(0, samples - before[1])
        return updates - before[0] if updates >= before[0] else None
