"""Whether a plan stays in force: steps with and without it are timed in turns.

At first steps with and without the plan alternate. Then the faster way is used, and now and then
the other one for a step, to notice when the machine has changed; the slower it is, the more rarely.
The choice changes only if the other way is clearly faster, and each change holds twice as long as
the one before: noise alone would go on changing it.
"""

from __future__ import annotations

from collections import deque
from math import ceil
from statistics import median

WINDOW = 9
"""Steps of each way whose median counts."""
FIRST_STEPS = 2
"""First steps of each way that do not count, for they are slow."""
LOOK_EVERY = 50
"""Steps between two steps of the way that is not used; more if it takes over twice as long, so that
these steps never cost more than 2 % of the time."""
CLEARLY = 0.98
"""The choice changes if the other way needs less than this share of the time."""
FIRST_HOLD, LONGEST_HOLD = 100, 100_000
"""Steps for which the first change holds, and the most for which any change holds."""


class Trial:
    """Chooses between a plan and doing without, step by step.

    Attributes:
        planned: whether the plan is used, except for a step now and then.
    """

    def __init__(self) -> None:
        self.planned = True
        self._steps, self._look_every = 0, LOOK_EVERY
        self._hold, self._held_until = FIRST_HOLD, 0
        self._seen = {True: 0, False: 0}
        self._times: dict[bool, deque[float]] = {
            way: deque(maxlen=WINDOW) for way in (True, False)
        }

    @property
    def decided(self) -> bool:
        """Whether both ways have been measured often enough."""
        return all(len(times) == WINDOW for times in self._times.values())

    def choose(self) -> bool:
        """Whether the next step follows the plan."""
        self._steps += 1
        if self._steps < self._held_until:
            return self.planned
        if not self.decided:
            return self._steps % 2 == 0
        return self.planned if self._steps % self._look_every else not self.planned

    def note(self, planned: bool, seconds: float) -> None:
        """Note the time of a step, with or without the plan."""
        self._seen[planned] += 1
        if self._seen[planned] <= FIRST_STEPS or self._steps < self._held_until:
            return
        self._times[planned].append(seconds)
        if not self.decided:
            return
        mine, other = (median(self._times[way]) for way in (self.planned, not self.planned))
        if mine > 0.0:
            self._look_every = ceil(LOOK_EVERY * max(1.0, other / mine - 1.0))
        if other < CLEARLY * mine:
            self.planned = not self.planned
            self._held_until = self._steps + self._hold
            self._hold = min(2 * self._hold, LONGEST_HOLD)
            # Both are measured anew before the choice changes again.
            for times in self._times.values():
                times.clear()
