"""Rollouts of the ledger, for on-policy algorithms.

A rollout is the newest `count` decisions whose successors are known, none of which was in a rollout
before. Older decisions, made while the learner was busy, are left out. A rollout with a
demonstration, which is not the policy's decision, is left out. So is a rollout that takes more
ticks than the replay keeps, as may happen if decisions are rare.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rtagent.config import LearningConfig
from rtagent.learning.replay.batch import Batch, BatchBuffer
from rtagent.learning.replay.look_up import Ints
from rtagent.learning.replay.replay import ROWS_PER_REFRESH
from rtagent.learning.replay.transitions import DecisionIndex
from rtagent.memory.frames import FrameRing
from rtagent.memory.ledger import Ledger


@dataclass(frozen=True)
class Rollout:
    """Consecutive decisions, in the order of their execution.

    Attributes:
        batch: the T transitions, from each decision to the next.
        log_probabilities: (T,) float32, of the actions by the policy that acted.
        continues: (T,) bool, whether a transition leads to the state of the next transition; not if
            it is terminal.
    """

    batch: Batch
    log_probabilities: Tensor
    continues: Tensor


class Rollouts:
    """Cuts the rows that come after its creation into rollouts.

    Args:
        frames: the shared frames.
        ledger: the shared rows.
        learning: discount.
        event: sends an event: event(kind, **details).
    """

    def __init__(
        self, frames: FrameRing, ledger: Ledger, learning: LearningConfig,
        event: Callable[..., None],
    ) -> None:
        self._ring, self._ledger, self._event = frames, ledger, event
        # With n_step 1 each transition is a single decision, in either unit.
        self._index = DecisionIndex(
            frames.capacity, ledger.dtype["action"], learning.gamma, 1,
            discount=learning.discount, pending=ledger.pending,
            kept=ledger.dtype[["log_probability"]],
        )
        self._buffer = BatchBuffer(frames, self._index, ledger.pending)
        self._next_tick = max(0, ledger.newest + 1)
        self._learned = 0
        self._lost_before = False

    def refresh(self) -> None:
        """Take in new rows of the ledger."""
        newest = min(self._ledger.newest, self._ring.newest)
        # In pieces: after a pause there may be as many as the ring holds.
        while (start := max(self._next_tick, self._ledger.oldest)) <= newest:
            stop = min(newest + 1, start + ROWS_PER_REFRESH)
            rows = self._ledger.read(start, stop)
            # Before `feed`: if it gets no memory, these rows are a gap, and are not fed twice.
            self._next_tick = stop
            self._index.feed(rows)

    def newest(self, count: int) -> Rollout | None:
        """The next rollout, valid until the next call; None while there is none."""
        _, end = self._index.span
        if end - self._learned < count:
            return None
        self._learned = end
        serials = np.arange(end - count, end)
        found = self._index.get(serials)
        lost = self._buffer.copy(self._buffer.choose(serials))
        self._report_loss(found.frame, lost=len(lost) > 0)
        if len(lost) or found.demonstrated.any():
            return None
        continues = np.zeros(count, np.bool_)
        continues[:-1] = (found.next_frame[:-1] == found.frame[1:]) & ~found.terminal[:-1]
        return Rollout(
            self._buffer.batch(None), torch.from_numpy(found.rows["log_probability"]),
            torch.from_numpy(continues),
        )

    def _report_loss(self, frames: Ints, *, lost: bool) -> None:
        """Send an event for the first of several rollouts in a row that are lost."""
        if lost and not self._lost_before:
            ring = self._ring
            oldest = max(ring.floor, ring.newest + 1 - ring.capacity)
            self._event(
                "rollout_lost", decisions=len(frames), ticks=ring.newest + 1 - int(frames[0]),
                replay_ticks=ring.newest + 1 - oldest,
            )
        self._lost_before = lost
