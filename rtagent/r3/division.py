"""The division of memory between batches and replay (Eqs. 3 to 6).

The bounds are ours, not the paper's. Batches get no more than the largest of them can use (Eq. 1),
and no less than one batch of the smallest size for each learner; the replay gets the rest, and at
least enough for learning to go on. Between these bounds alpha and beta move the division away from
the share `r3.batch_share`, and it returns there within about `r3.window` episodes: Eq. 5 alone only
ever adds, nearly always to the replay, and would in time leave every batch at the smallest size
(`equations.scale_reservations`). Without a budget nothing is divided, unless memory is short.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

from rtagent.config import R3Config
from rtagent.memory.control import DesiredState
from rtagent.memory.horizon import UNKNOWN
from rtagent.memory.process_metrics import EnvironmentRecord
from rtagent.r3 import equations
from rtagent.r3.budget import AIM, ReplaySizes
from rtagent.r3.memory_usage import MemoryUsage

GROWTH = 1.02
"""The largest growth per second of the replay, and of the total after a shortage."""
LONGEST_GROWTH_S = 600.0
"""Time that counts as growth at most; that is enough to reach any amount of memory."""


class EpisodeScales:
    """The factors by which the newest episodes move the division (Eqs. 4 and 5).

    Args:
        environment: the environment's record in the metrics.
        tick_seconds: tau_M.
        window: gamma, episodes.

    Attributes:
        alpha: of the newest episode.
        beta: of the newest episode.
        scales: factors of the configured reservations of batches and of the replay.
    """

    def __init__(self, environment: EnvironmentRecord, tick_seconds: float, window: int) -> None:
        self._environment, self._tick_seconds, self._window = environment, tick_seconds, window
        self._seconds: deque[float] = deque(maxlen=window)
        self._returns: deque[float] = deque(maxlen=window)
        self._seen = 0
        self.alpha = self.beta = UNKNOWN
        self.scales = (1.0, 1.0)

    def update(self) -> bool:
        """Take in the episodes that have finished; returns whether there were any."""
        finished, self._seen = self._environment.episodes.since(self._seen)
        for episode in finished:
            self._add(float(episode["length"]) * self._tick_seconds, float(episode["return"]))
        return len(finished) > 0

    def _add(self, seconds: float, value: float) -> None:
        if not math.isfinite(value):
            return
        if self._seconds:
            self.alpha = equations.alpha(seconds, self._seconds)
            self.beta = equations.beta(value, self._returns)
            self.scales = equations.scale_reservations(
                self.scales, self.alpha, self.beta, self._window
            )
        self._seconds.append(seconds)
        self._returns.append(value)


class Division:
    """The memory that batches and replay may use.

    Args:
        usage: the memory that they use.
        sizes: bounds of the replay.
        r3: share of the batches before episodes move it.
        budget: bytes. If None, there is no budget.
        now: seconds.
        recovered: called with the bytes to divide once a shortage is over.

    Attributes:
        batch: bytes for the batches of all learners. If None, no limit.
        replay: bytes for the replay. If None, no limit.
        ticks_limit: ticks that the replay may keep.
    """

    def __init__(
        self, usage: MemoryUsage, sizes: ReplaySizes, r3: R3Config, budget: int | None, now: float,
        recovered: Callable[[float], None],
    ) -> None:
        self._usage, self._sizes = usage, sizes
        self._share = r3.batch_share
        self._recovered = recovered
        self._divided_at = now
        self._ceiling: float | None = None
        self.batch: float | None = None
        self.replay: float | None = None
        self.ticks_limit = sizes.most_ticks if budget is None else sizes.ticks_in(budget)

    def halve(self, desired: DesiredState, *, refused: bool) -> None:
        """Halve both reservations, or what is used if that is less.

        Args:
            desired: in force.
            refused: whether a batch did not fit; then the batch in use has been halved already.
        """
        held, in_use = self._usage.replay(), self._usage.batch(desired)
        replay = held if self.replay is None else min(self.replay, held)
        batch = in_use if self.batch is None else min(self.batch, in_use)
        self.replay = max(replay / 2, self._sizes.least_bytes)
        self.batch = max(batch if refused else batch / 2, self._usage.batch(desired, 1))
        self._ceiling = self.replay + self.batch
        self.ticks_limit = min(self.ticks_limit, self._sizes.ticks_in(self.replay))

    def divide(
        self, now: float, desired: DesiredState, budget: int | None, scales: tuple[float, float],
        *, recover: bool,
    ) -> None:
        """Divide the memory by Eq. 6 within the bounds; set the limit of the replay by Eq. 3.

        Args:
            now: seconds.
            desired: in force.
            budget: bytes. If None, there is no budget.
            scales: of the newest episodes.
            recover: whether the reservations may grow again after a shortage.
        """
        # Bounded, so that after a long stop the power does not overflow.
        growth = GROWTH ** min(now - self._divided_at, LONGEST_GROWTH_S)
        self._divided_at = now
        total = self._total(desired, budget, growth if recover else 1.0)
        if total is None:
            self.batch = self.replay = None
            self.ticks_limit = self._sizes.most_ticks
            return
        largest = self._usage.largest_batch(desired)
        if self._ceiling is None or not self.batch or self.replay is None:
            batch = self._share_of_batches(total, desired, largest, scales)
        else:
            batch, _ = equations.fit(self.batch, self.replay, total)
        self.batch = min(batch, largest, total - self._sizes.least_bytes)
        # Memory that learners keep from larger batches is not free for the replay.
        kept = self.batch if self._ceiling else max(self.batch, self._usage.batches(desired))
        self.replay = max(total - kept, self._sizes.least_bytes)
        limit = self._sizes.ticks_in(self.replay)
        self.ticks_limit = min(limit, math.ceil(self.ticks_limit * growth))

    def _total(self, desired: DesiredState, budget: int | None, growth: float) -> float | None:
        """M, the memory of batches and replay together; None if there is no limit."""
        least = self._sizes.least_bytes + self._usage.batch(desired, 1)
        if budget is None:
            total = self._sizes.most_bytes + self._usage.largest_batch(desired)
        else:
            total = AIM * budget - self._usage.baseline(desired)
        if self._ceiling is not None:
            self._ceiling *= growth
            if self._ceiling < total:
                return max(self._ceiling, least)
            self._ceiling = None
            self._recovered(total)
        return None if budget is None else max(total, least)

    def _share_of_batches(
        self, total: float, desired: DesiredState, largest: float, scales: tuple[float, float]
    ) -> float:
        # A budget is accepted only if it has room for batches of the smallest size.
        smallest = self._usage.batch(desired, desired.learning.update_size)
        batch = min(max(self._share * total, smallest), largest)
        more_batch, more_replay = scales
        batch, _ = equations.fit(batch * more_batch, (total - batch) * more_replay, total)
        return max(batch, smallest)
