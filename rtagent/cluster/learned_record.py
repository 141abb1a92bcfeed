"""What the gateway counts of the learner's updates, as a learner beside the world does itself."""

from __future__ import annotations

from collections.abc import Callable

from rtagent.clock import NANO
from rtagent.cluster.calls import Learned
from rtagent.memory.learner_state import Progress
from rtagent.memory.process_metrics import LearnerRecord


class LearnedRecord:
    """Counts updates.

    Args:
        record: of the gateway.
        event: `WorkerContext.event`; tells of updates that were left out, once for those that
            follow each other.
    """

    def __init__(self, record: LearnerRecord, event: Callable[..., object]) -> None:
        self._record, self._event = record, event
        self._bad_burst = False
        self._samples: int | None = None

    def begin(self, progress: Progress) -> None:
        """Take over what was learned before, by which a learner begins that has nothing yet."""
        self._record.updates = progress.updates
        self._consumed(progress.samples)

    def note(self, learned: Learned, now: float) -> None:
        """Count an update that this node had a share of."""
        record = self._record
        record.updates = learned.updates
        self._consumed(learned.samples)
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
            record.applied += 1
            record.loss = learned.loss
            record.applied_ns, record.update_ns = int(now * NANO), int(learned.seconds * NANO)

    def _consumed(self, samples: int) -> None:
        """Count on from the learner's number, which falls where it begins with an older state."""
        record = self._record
        if self._samples is None:
            record.samples_consumed = max(record.samples_consumed, samples)
        else:
            record.samples_consumed += max(0, samples - self._samples)
        self._samples = samples
