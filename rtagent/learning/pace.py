"""How many updates a learner may make, and a schedule that follows from their number."""

from __future__ import annotations

from rtagent.config import LearningConfig

CREDIT_TICKS = 60.0
"""Updates of so many ticks may be saved up."""


class Pace:
    """A credit of updates, which grows with the ticks of the run.

    Args:
        ticks: of the run so far, which add nothing.

    Attributes:
        credit: updates that may be made. It never falls below 0: updates that are made without a
            bound are not owed later.
    """

    def __init__(self, ticks: int) -> None:
        self._ticks = ticks
        self.credit = 0.0

    def due(self, ticks: int, rate: float) -> bool:
        """Whether it is time for an update.

        Args:
            ticks: of the run so far.
            rate: this learner's updates per tick; 0: no bound.
        """
        earned = rate * (ticks - self._ticks)
        self.credit = min(self.credit + earned, max(1.0, rate * CREDIT_TICKS))
        self._ticks = ticks
        return rate == 0.0 or self.credit >= 1.0

    def spend(self) -> None:
        """Take one update from the credit."""
        self.credit = max(0.0, self.credit - 1.0)


def importance_exponent(learning: LearningConfig, updates: int) -> float:
    """The exponent of the importance weights, which grows linearly to 1 (Schaul et al., 2016)."""
    done = min(1.0, updates / learning.importance_steps)
    return learning.importance_exponent + done * (1.0 - learning.importance_exponent)
