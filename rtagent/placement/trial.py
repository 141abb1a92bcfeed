"""Whether a plan stays in force: decided by what both ways take, measured in turns.

At first the two ways alternate. Then the faster one is used, and now and then the other one for a
step, so that a machine that has changed is noticed; the more rarely, the slower that one is. The
way is left only for one that is clearly faster, and each change holds twice as long as the one
before: noise alone would go on changing it.
"""

from __future__ import annotations

from collections import deque
from math import ceil
from statistics import median

WINDOW = 9
"""Steps of each way whose median counts."""
FIRST_STEPS = 2
"""Of each way, not counted: first calls are slow."""
LOOK_EVERY = 50
"""Steps between two of the way that is not used, and as many times more as it takes longer than one
step more. So it never costs more than 2 % of the time."""
CLEARLY = 0.98
"""The other way is taken if it needs less than this share of the time."""
FIRST_HOLD, LONGEST_HOLD = 100, 100_000
"""Steps for which the first change holds, and at most any."""


class Trial:
    """Chooses between a plan and doing without, step by step.

    Attributes:
        planned: whether the plan is in force, but for a step now and then.
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
        """What a step took."""
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
            # Both are looked at anew before the choice changes again.
            for times in self._times.values():
                times.clear()
