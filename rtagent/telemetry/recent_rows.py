"""The newest rows of the tick ledger, each copied and checked once.

Figures cover a minute and are computed several times a second, so that all but a few of their rows
have been read before. The newest are read again each time, for they may be rewritten
(`Ledger.truncate_episode`), and be torn meanwhile. Not for several threads at once.
"""

from __future__ import annotations

import numpy as np

from rtagent.memory.ledger import Ledger, Rows

UNSETTLED = 4
"""Newest rows that are read again."""


class RecentRows:
    """Reads a ledger's newest rows, from the run's first tick on: times of older rows are not
    those of this run's clock.

    Attributes:
        whole_since_ns: rows of ticks before that time have been overwritten unread; 0 if none have.
    """

    def __init__(self, ledger: Ledger, first_tick: int) -> None:
        self._ledger = ledger
        self._first_tick = first_tick
        self._settled = ledger.read(0, 0)
        # From this time on no settled row is missing.
        self._since_ns = 0
        self.whole_since_ns = 0

    def since(self, since_ns: int, most: int) -> Rows:
        """The whole rows of ticks at `since_ns` or later, in order, as far as none is missing.

        Args:
            since_ns: on the workers' clock. Rows are read anew if it is earlier than before.
            most: upper bound of the ticks since then.
        """
        newest = self._ledger.newest
        kept = self._settled if since_ns >= self._since_ns else self._settled[:0]
        first = max(newest - most, self._first_tick)
        if len(kept) and kept["tick"][-1] + 1 >= first:
            first = int(kept["tick"][-1]) + 1
        else:
            kept, self.whole_since_ns = kept[:0], 0
        there = max(first, self._ledger.oldest)
        found = self._ledger.read(there, newest + 1)
        if there > first and len(found):
            kept, self.whole_since_ns = kept[:0], int(found["time_ns"][0])
        rows = from_time(np.concatenate([kept, found]), since_ns)
        settled = np.searchsorted(rows["tick"], newest - UNSETTLED, side="right")
        self._settled, self._since_ns = rows[:settled], since_ns
        return rows


def from_time(rows: Rows, since_ns: float) -> Rows:
    """Those of `rows`, which are in order, whose tick was at that time or later; not a copy."""
    return rows[np.searchsorted(rows["time_ns"], since_ns) :]
