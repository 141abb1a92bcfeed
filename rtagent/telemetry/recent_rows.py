"""The newest rows of the tick ledger, each copied and checked once.

Figures cover a minute and are asked for several times a second: all but a few of their rows are
those of the time before. The newest are read again each time, for they may be written anew
(`Ledger.truncate_episode`) and be torn while they are. Not for several threads at once.
"""

from __future__ import annotations

import numpy as np

from rtagent.memory.ledger import Ledger, Rows

UNSETTLED = 4
"""Newest rows that are read again."""


class RecentRows:
    """Reads a ledger's newest rows, from the run's first tick on: older ones carry other times."""

    def __init__(self, ledger: Ledger, first_tick: int) -> None:
        self._ledger = ledger
        self._first_tick = first_tick
        self._settled = ledger.read(0, 0)
        # From then on no settled row is missing.
        self._since_ns = 0

    def since(self, since_ns: int, most: int) -> Rows:
        """The whole rows of ticks at `since_ns` or later, in order.

        Args:
            since_ns: on the workers' clock. An earlier time than before costs more.
            most: ticks that there can be since then.
        """
        newest = self._ledger.newest
        kept = self._settled if since_ns >= self._since_ns else self._settled[:0]
        first = max(newest - most, self._ledger.oldest, self._first_tick)
        if len(kept):
            first = max(first, int(kept["tick"][-1]) + 1)
        rows = from_time(np.concatenate([kept, self._ledger.read(first, newest + 1)]), since_ns)
        settled = np.searchsorted(rows["tick"], newest - UNSETTLED, side="right")
        self._settled, self._since_ns = rows[:settled], since_ns
        return rows


def from_time(rows: Rows, since_ns: float) -> Rows:
    """Those of some rows, given in order, whose tick was at that time or later; not a copy."""
    return rows[np.searchsorted(rows["time_ns"], since_ns) :]
