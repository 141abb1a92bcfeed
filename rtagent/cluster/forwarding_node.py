"""The buffer node of the baseline: forwards every tick; the learner keeps the replay and samples.

S. Morishima and H. Matsutani, doi:10.1109/ACCESS.2024.3402835, Sec. III, Algorithms 1 to 3: the
buffer stores what the actors experience and transfers it in FIFO order; replay and sampling are at
the learner (`mirror.py`). Each tick is sent once, as its row and its frame. A message also says
how many transitions shall be learned from, so the daemon sets the pace of learning as it does with
a replay of its own.

Why it is correct. Ticks that wait to be sent lie in the ring and the ledger, so their number is
bounded: ticks that are lost there before they were sent are counted and skipped. When a session
begins, the learner says which tick it expects. So no tick is missing after a session that ended,
and none comes twice; a learner without any tick is sent all that the ring holds, the oldest first.
"""

from __future__ import annotations

from bisect import bisect_left

import numpy as np

from rtagent.cluster.message import pack
from rtagent.cluster.node import Node, Sent, Settings
from rtagent.config import LearningConfig
from rtagent.learning.replay.replay import Replay
from rtagent.memory.frames import FrameRing, Ints
from rtagent.memory.ledger import Ledger

TICKS_PER_CALL = 32
"""N_batch: so many ticks are sent together, unless a message that asks to learn goes out before."""
MOST_BYTES = 8 << 20
"""Size of the ticks of one message."""


class ForwardingNode(Node):
    """Sends every tick once, in order."""

    def __init__(self, ring: FrameRing, ledger: Ledger) -> None:
        # This replay only counts transitions, and their number depends on no setting.
        super().__init__(Replay(ring, ledger, LearningConfig(n_step=1)))
        self._ring, self._ledger = ring, ledger
        frame_bytes = ring.frames[0].nbytes
        self._most = max(1, MOST_BYTES // (frame_bytes + ledger.dtype.itemsize))
        self._next = self._oldest

    def begin_session(self, expected: int, slots: int) -> None:
        super().begin_session(expected, slots)
        # Ticks that were lost before a learner had any are not missing there: they do not count.
        self._next = expected or self._oldest

    @property
    def ticks(self) -> int:
        """Number of ticks that were sent and that the ring still holds."""
        return max(0, self._next - self._oldest)

    def make(self, count: int, settings: Settings) -> Sent | None:
        first = max(self._next, self._oldest)
        self._count_lost(range(self._next, first))
        self._next = first
        stop = max(first, min(self._newest + 1, first + self._most))
        if not count and stop - first < min(TICKS_PER_CALL, self._most):
            return None
        self._replay.catch_up()
        rows, numbers = self._ledger.read(first, stop), np.arange(first, stop)
        frames, starts, whole = self._ring.read(numbers)
        self._next = stop
        self._count_lost(numbers[~whole])
        # A tick that did not arrive in an earlier session is sent again, and counts once.
        counts = self.counts
        counts.shipped += int(np.count_nonzero(numbers[whole] >= counts.shipped_until))
        counts.shipped_until = max(counts.shipped_until, stop)
        values = {"count": count, "beta": settings.beta, "stop": stop}
        arrays = {
            "rows": np.frombuffer(rows.tobytes(), np.uint8),
            "numbers": numbers[whole], "episode_starts": starts[whole], "frames": frames[whole],
        }
        block = pack({**self._values(settings), **values}, arrays)
        return self._keep(Sent(self._next_seq, block, learns=bool(count)))

    def _count_lost(self, numbers: Ints | range) -> None:
        """Count lost ticks, in order; those that an earlier session has missed count once."""
        new = numbers[bisect_left(numbers, self.counts.lost_until) :]
        if len(new):
            self.counts.lost += len(new)
            self.counts.lost_until = int(new[-1]) + 1

    @property
    def _oldest(self) -> int:
        return max(0, self._ring.oldest, self._ledger.oldest)

    @property
    def _newest(self) -> int:
        return min(self._ring.newest, self._ledger.newest)
