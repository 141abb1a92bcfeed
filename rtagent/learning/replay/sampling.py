"""Which transitions make up a batch: each with the same chance, or large errors sooner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from rtagent.learning.replay.look_up import Ints
from rtagent.learning.replay.transitions import DecisionIndex, Doubles
from rtagent.memory.priorities import Priorities

REDRAWS = 32
"""Draws until a batch is complete. After a floor has risen, most of what is drawn may be lost."""
SMALLEST_ERROR = 1e-6
"""Added to each error, so that no transition is given up for ever."""


@dataclass
class Drawn:
    """Transitions that were chosen.

    Attributes:
        serials: (n,) as `DecisionIndex` counts them.
        priorities: (n,) to which their probabilities were proportional; none if all were the same.
    """

    serials: Ints
    priorities: Doubles | None = None

    def put(self, positions: Ints, other: Drawn) -> None:
        """Replace the transitions at some positions (m,) by those of another draw (m,)."""
        self.serials[positions] = other.serials
        if self.priorities is not None and other.priorities is not None:
            self.priorities[positions] = other.priorities

    def weights(self, beta: float) -> Doubles | None:
        """Importance weights (n,), the largest of the batch 1; none if all are the same.

        w_i = (N P(i))^-beta / max_j w_j (Schaul et al., 2016, Sec. 3.4). N and the sum of all
        priorities cancel, which leaves (min_j p_j / p_i)^beta.
        """
        if self.priorities is None:
            return None
        weights: Doubles = (self.priorities.min() / self.priorities) ** beta
        return weights


class Sampler(Protocol):
    """Chooses transitions."""

    def follow(self, index: DecisionIndex, oldest: int) -> None:
        """Take notice of new transitions, and of the loss of those of frames below `oldest`."""
        ...

    def draw(self, count: int, index: DecisionIndex, rng: np.random.Generator) -> Drawn | None:
        """Choose `count` transitions; none if that is not possible now. The index is not empty."""
        ...

    def update(self, frames: Ints, errors: Doubles) -> None:
        """Take notice of the errors (n,) of the transitions that begin with these frames (n,)."""
        ...

    def discard(self, frames: Ints) -> None:
        """Choose the transitions that begin with these frames (n,) no more: they are incomplete."""
        ...


class Uniform:
    """Every transition with the same probability."""

    def follow(self, index: DecisionIndex, oldest: int) -> None:
        """Nothing to do: the index is all that matters."""

    def draw(self, count: int, index: DecisionIndex, rng: np.random.Generator) -> Drawn | None:
        first, end = index.span
        # Sooner than `rng.integers`; rounding makes no serial likelier by more than 2**-53.
        serials = (rng.random(count) * (end - first)).astype(np.int64)
        serials += first
        # The order means nothing, and frames that lie near each other are sooner found: 4 % at 512.
        serials.sort()
        return Drawn(serials)

    def update(self, frames: Ints, errors: Doubles) -> None:
        """Nothing to do: errors do not matter."""

    def discard(self, frames: Ints) -> None:
        """Nothing to do: drawing one for nothing is rare, and costs little."""


class Prioritized:
    """Proportional prioritization: P(i) = p_i^alpha / sum_k p_k^alpha (Schaul et al., 2016, Eq. 1).

    p_i = |error| + `SMALLEST_ERROR`. A batch is drawn by strata: one transition from each of n
    equal parts of the sum (Sec. 3.3). Transitions that another learner has found and this one has
    not yet, or has forgotten already, are drawn again.

    Args:
        priorities: shared by all learners.
        exponent: alpha.
    """

    def __init__(self, priorities: Priorities, exponent: float) -> None:
        self._priorities = priorities
        self._exponent = exponent
        self._followed = self._oldest = 0
        self._strata = np.arange(0.0)

    def follow(self, index: DecisionIndex, oldest: int) -> None:
        first, end = index.span
        if end == self._followed and oldest == self._oldest:
            return
        if self._priorities.advance(index.frames(max(first, self._followed), end), oldest):
            self._followed, self._oldest = end, oldest

    def draw(self, count: int, index: DecisionIndex, rng: np.random.Generator) -> Drawn | None:
        drawn = self._draw(count, index, rng)
        for _ in range(REDRAWS):
            if drawn is None or drawn.serials.min() >= 0:
                return drawn
            unknown = np.flatnonzero(drawn.serials < 0)
            other = self._draw(len(unknown), index, rng)
            if other is None:
                return None
            drawn.put(unknown, other)
        return None

    def update(self, frames: Ints, errors: Doubles) -> None:
        # One that is not finite has no finite priority, and is ignored.
        self._priorities.update(frames, (np.abs(errors) + SMALLEST_ERROR) ** self._exponent)

    def discard(self, frames: Ints) -> None:
        self._priorities.discard(frames)

    def _draw(self, count: int, index: DecisionIndex, rng: np.random.Generator) -> Drawn | None:
        """Choose among all; serial -1 for what the index does not hold."""
        if len(self._strata) < count:
            self._strata = np.arange(float(count))
        fractions = rng.random(count)
        fractions += self._strata[:count]
        fractions /= count
        found = self._priorities.draw(fractions)
        if found is None:
            return None
        frames, priorities = found
        return Drawn(index.find(frames), priorities)
