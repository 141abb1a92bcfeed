"""Which transitions are drawn for a batch: all with the same probability, or by their errors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rtagent.learning.replay.look_up import Ints
from rtagent.learning.replay.powers import Doubles, Floats, Powers
from rtagent.learning.replay.transitions import DecisionIndex
from rtagent.memory.priorities import Priorities

REDRAWS = 32
"""Attempts to complete a batch. After a floor has risen, most drawn transitions may be lost."""


@dataclass
class Drawn:
    """Transitions that were drawn.

    Attributes:
        serials: (n,) serial numbers in the `DecisionIndex`, -1 for transitions it does not hold.
        priorities: (n,) to which the probabilities were proportional; None if all were the same.
        known: whether the index holds all of them.
    """

    serials: Ints
    priorities: Doubles | None = None
    known: bool = True

    def put(self, positions: Ints, other: Drawn) -> None:
        """Replace the transitions at some positions (m,) by those of another draw (m,).

        All transitions at other positions must be known.
        """
        self.serials[positions], self.known = other.serials, other.known
        if self.priorities is not None and other.priorities is not None:
            self.priorities[positions] = other.priorities


class Sampler:
    """Draws transitions, each with the same probability."""

    def follow(self, index: DecisionIndex, oldest: int) -> None:
        """Take in new transitions, and the loss of those whose frame is older than `oldest`."""

    def draw(self, count: int, index: DecisionIndex, rng: np.random.Generator) -> Drawn | None:
        """Draw `count` transitions; None if that is not possible now. The index is not empty."""
        first, end = index.span
        # Faster than `rng.integers`; rounding makes no serial likelier by more than 2**-53.
        serials = (rng.random(count) * (end - first)).astype(np.int64)
        serials += first
        # The order has no meaning, and frames are read faster in ascending order: 4 % at 512.
        serials.sort()
        return Drawn(serials)

    def weights(self, drawn: Drawn, beta: float) -> Doubles | None:
        """Importance weights (n,), valid until the next call; None if all are the same."""
        return None

    def update(self, frames: Ints, errors: Floats) -> None:
        """Take in the errors (n,) of the transitions that begin with these frames (n,)."""

    def discard(self, frames: Ints) -> None:
        """Stop drawing the transitions that begin with these frames (n,): they are incomplete.

        Here it does nothing, for drawing one in vain is rare, and costs little.
        """


class Prioritized(Sampler):
    """Proportional prioritization: P(i) = p_i^alpha / sum_k p_k^alpha (Schaul et al., 2016, Eq. 1).

    `powers.py` computes p_i^alpha and the weights. A batch is drawn by strata: one transition from
    each of n equal parts of the sum (Sec. 3.3). Learners share the priorities but not their
    indices: a drawn transition that this learner has not yet found, or has forgotten, is replaced
    by another draw.

    Args:
        priorities: shared by all learners.
        exponent: alpha.
    """

    def __init__(self, priorities: Priorities, exponent: float) -> None:
        self._priorities = priorities
        self._exponent = exponent
        self._followed = self._oldest = 0
        # One for the thread that draws, one for the thread that brings errors.
        self._for_weights, self._for_priorities = Powers(), Powers()

    def follow(self, index: DecisionIndex, oldest: int) -> None:
        first, end = index.span
        if end == self._followed and oldest == self._oldest:
            return
        if self._priorities.advance(index.frames(max(first, self._followed), end), oldest):
            self._followed, self._oldest = end, oldest

    def draw(self, count: int, index: DecisionIndex, rng: np.random.Generator) -> Drawn | None:
        drawn = self._draw(count, index, rng)
        for _ in range(REDRAWS):
            if drawn is None or drawn.known:
                return drawn
            unknown = np.flatnonzero(drawn.serials < 0)
            other = self._draw(len(unknown), index, rng)
            if other is None:
                return None
            drawn.put(unknown, other)
        return None

    def weights(self, drawn: Drawn, beta: float) -> Doubles:
        assert drawn.priorities is not None
        return self._for_weights.weights(drawn.priorities, beta)

    def update(self, frames: Ints, errors: Floats) -> None:
        # An error that is not finite gives a priority that is not finite, which is ignored.
        self._priorities.update(frames, self._for_priorities.priorities(errors, self._exponent))

    def discard(self, frames: Ints) -> None:
        self._priorities.discard(frames)

    def _draw(self, count: int, index: DecisionIndex, rng: np.random.Generator) -> Drawn | None:
        """Draw from the shared priorities, whether or not the index holds the transitions."""
        found = self._priorities.draw(rng.random(count))
        if found is None:
            return None
        frames, priorities = found
        serials, known = index.find(frames)
        return Drawn(serials, priorities, known)
