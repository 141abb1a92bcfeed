"""How long before an event a process wakes up, so that it is awake when the event comes.

A sleep ends late: by microseconds where cores are kept awake, by a millisecond where the host must
wake a virtual machine's core. `WakeAhead` measures how late the sleeps of its process end and
chooses a time ahead that covers nearly all of them, or a shorter one if the process would otherwise
be awake before events, spinning included, for more than a share of a core. The later sleeps end,
the less of the time ahead is spent awake, and the longer it may be.
"""

from __future__ import annotations

from collections import deque

import numpy as np
import numpy.typing as npt

CPU_SHARE = 0.03
"""Largest share of a core for each process that wakes ahead of an event in every period."""
QUANTILE = 0.99
"""Share of the wake-ups that is to be covered."""
MARGIN_S = 20e-6
FIRST_S = 400e-6
"""The time ahead before anything is measured, if the share permits it."""
WINDOW = 256
"""Wake-ups remembered."""
EVERY = 16
"""Wake-ups between two choices."""
BEHINDS = 16
"""Newest events that a forecast is made from."""

Seconds = npt.NDArray[np.float64]


def time_ahead(late: Seconds, ready: Seconds, over: Seconds, budget_s: float) -> float:
    """The time ahead that covers `QUANTILE` of what was measured, within a budget.

    With a time ahead a, a wake-up that is late by l is followed by max(0, a - l) awake before the
    event. The largest a whose mean max(0, a - l_i) does not exceed a budget B is the least of
    (n B + l_1 + ... + l_k) / k over k, the l_i in ascending order: the mean is the largest of
    (k a - l_1 - ... - l_k) / n.

    Args:
        late: (n,) seconds by which sleeps ended late.
        ready: (n,) seconds from the requested end of the sleep until all was prepared.
        over: (n,) seconds awake beyond what the time ahead explains: the event was late.
        budget_s: seconds awake per wake-up, on average.

    Returns:
        Seconds.
    """
    wanted = float(np.sort(ready)[int(QUANTILE * len(ready))]) + MARGIN_S
    left = max(0.0, budget_s - float(over.mean()))
    ascending = np.sort(late)
    counts = np.arange(1, len(late) + 1)
    most = float(((len(late) * left + np.cumsum(ascending)) / counts).min())
    return min(wanted, most)


class WakeAhead:
    """Chooses the time ahead of one process.

    Args:
        period_s: from one event to the next.

    Attributes:
        seconds: the time ahead in force.
        awake_s: time spent awake ahead of events, and on events that were late, so far.
    """

    def __init__(self, period_s: float) -> None:
        self._budget_s = CPU_SHARE * period_s
        self.seconds = min(FIRST_S, self._budget_s)
        self.awake_s = 0.0
        self._late = np.zeros(WINDOW)
        self._ready = np.zeros(WINDOW)
        self._over = np.zeros(WINDOW)
        self._count = self._chosen = 0
        self._noted: list[tuple[float, float, float]] = []

    def note(self, late_s: float, ready_s: float, awake_s: float) -> None:
        """Remember a wake-up for `choose`: at the event itself there is no time to evaluate it.

        Args:
            late_s: from the requested end of the sleep to its real one.
            ready_s: from the requested end of the sleep until all was prepared.
            awake_s: from the real end of the sleep to the event.
        """
        self._noted.append((late_s, ready_s, awake_s))

    def choose(self) -> None:
        """Adapt the time ahead to the remembered wake-ups. Called before each sleep."""
        for late_s, ready_s, awake_s in self._noted:
            at = self._count % WINDOW
            self._late[at], self._ready[at] = late_s, ready_s
            self._over[at] = max(0.0, awake_s - max(0.0, self.seconds - late_s))
            self.awake_s += awake_s
            self._count += 1
        self._noted.clear()
        if self._count - self._chosen >= EVERY:
            self._chosen = self._count
            held = slice(min(self._count, WINDOW))
            self.seconds = time_ahead(
                self._late[held], self._ready[held], self._over[held], self._budget_s
            )


class Forecast:
    """When the next event comes: its due time, and the first quartile of the last delays.

    A process that is in time for an early event is in time for the others, too.
    """

    def __init__(self) -> None:
        self._behind: deque[float] = deque(maxlen=BEHINDS)

    def expected(self, due: float, behind: float) -> float:
        """Seconds at which the event comes.

        Args:
            due: seconds at which it is due.
            behind: seconds by which the newest event lay behind its due time.
        """
        self._behind.append(behind)
        return due + sorted(self._behind)[len(self._behind) // 4]
