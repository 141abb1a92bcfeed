"""Which transitions make up a batch: each with the same chance, or large errors sooner."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rtagent.learning.replay.look_up import Ints
from rtagent.learning.replay.powers import Doubles, Floats, prepare_powers
from rtagent.learning.replay.transitions import DecisionIndex
from rtagent.memory.priorities import Priorities

REDRAWS = 32
"""Draws until a batch is complete. After a floor has risen, most of what is drawn may be lost."""


@dataclass
class Drawn:
    """Transitions that were chosen.

    Attributes:
        serials: (n,) as `DecisionIndex` counts them, -1 for what it does not hold.
        priorities: (n,) to which their probabilities were proportional; none if all were the same.
        known: the index holds all of them.
    """

    serials: Ints
    priorities: Doubles | None = None
    known: bool = True

    def put(self, positions: Ints, other: Drawn) -> None:
        """Replace the transitions at some positions (m,) by those of another draw (m,).

        Those that are left are known.
        """
        self.serials[positions], self.known = other.serials, other.known
        if self.priorities is not None and other.priorities is not None:
            self.priorities[positions] = other.priorities


class Sampler:
    """Chooses transitions, each with the same probability."""

    def follow(self, index: DecisionIndex, oldest: int) -> None:
        """Take notice of new transitions, and of the loss of those of frames below `oldest`."""

    def draw(self, count: int, index: DecisionIndex, rng: np.random.Generator) -> Drawn | None:
        """Choose `count` transitions; none if that is not possible now. The index is not empty."""
        first, end = index.span
        # Sooner than `rng.integers`; rounding makes no serial likelier by more than 2**-53.
        serials = (rng.random(count) * (end - first)).astype(np.int64)
        serials += first
        # The order means nothing, and frames that lie near each other are sooner found: 4 % at 512.
        serials.sort()
        return Drawn(serials)

    def weights(self, drawn: Drawn, beta: float) -> Doubles | None:
        """Importance weights (n,), valid until the next call; none if all are the same."""
        return None

    def update(self, frames: Ints, errors: Floats) -> None:
        """Take notice of the errors (n,) of the transitions that begin with these frames (n,)."""

    def discard(self, frames: Ints) -> None:
        """Choose the transitions that begin with these frames (n,) no more: they are incomplete.

        To draw one for nothing is rare, and costs little.
        """


class Prioritized(Sampler):
    """Proportional prioritization: P(i) = p_i^alpha / sum_k p_k^alpha (Schaul et al., 2016, Eq. 1).

    p_i^alpha and the weights are those of `powers.py`. A batch is drawn by strata: one transition
    from each of n equal parts of the sum (Sec. 3.3). Transitions that another learner has found and
    this one has not yet, or has forgotten already, are drawn again.

    Args:
        priorities: shared by all learners.
        exponent: alpha.
    """

    def __init__(self, priorities: Priorities, exponent: float) -> None:
        self._priorities = priorities
        self._exponent = exponent
        self._followed = self._oldest = 0
        # One for the thread that draws, one for that which knows the errors.
        self._weighing, self._updating = prepare_powers(), prepare_powers()

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
        return self._weighing.weights(drawn.priorities, beta)

    def update(self, frames: Ints, errors: Floats) -> None:
        # That of an error that is not finite is not finite either, and is ignored.
        self._priorities.update(frames, self._updating.priorities(errors, self._exponent))

    def discard(self, frames: Ints) -> None:
        self._priorities.discard(frames)

    def _draw(self, count: int, index: DecisionIndex, rng: np.random.Generator) -> Drawn | None:
        """Choose among all."""
        found = self._priorities.draw(rng.random(count))
        if found is None:
            return None
        frames, priorities = found
        serials, known = index.find(frames)
        return Drawn(serials, priorities, known)
