"""How many batches may be on their way at once: as many as keep the learner busy, and no more.

What fills a link without queueing in it is its rate times its delay. Both are measured: the rate is
the largest at which answers came, the delay the smallest round trip of the link alone (from a batch
to its answer, without the time that the learner says it held it), each over a window of time (as
N. Cardwell et al., BBR: Congestion-Based Congestion Control, Communications of the ACM 60(2), 2017,
doi:10.1145/3009824, estimate a path). A quarter more than that is allowed, so that a link that has
become faster shows it; and, as the learner is no part of the link, what it works on and what waits
there for its turn.

A call of Ray costs some milliseconds of processor time, at both ends and between them, whatever it
carries. So batches that the learner needs less time for travel several in a call, unless the link
is slow: what it works on, and what waits there, is a call each.

A message lies in Ray's object store, which writes to disk what it has no room for, and a batch in
the learner's memory until it is learned from. So the bytes on their way are bounded, too.
"""

from __future__ import annotations

import math
from collections import deque

MOST_IN_FLIGHT = 64
"""Batches on their way, whatever is measured."""
GAIN = 1.25
MEMORY_S = 10.0
"""A measurement counts for so long."""
RATE_DELAYS, LEAST_RATE_S, LEAST_ANSWERS = 4.0, 1.0, 3
"""A rate is that of the answers over so many delays, over so long, and of so many, at least."""
LEAST = 2
"""Calls at the learner: one whose batches are learned from, and one that waits."""
CALL_S = 0.1
"""A call carries what the learner needs so long for, and what comes over the link in so long, and
one batch at least."""
MOST_BYTES = 128 << 20
"""On their way, unless `LEAST` batches alone have more."""
AVERAGED = 8
"""Updates over which their time is averaged."""
SHORTEST_S = 1e-6
"""A round trip that is measured as less: the two ends' clocks do not go quite alike."""


def allowed(rate: float, delay_s: float, most: int, in_a_call: int = 1) -> int:
    """Batches that may be on their way.

    Args:
        rate: largest measured rate of answers, per second.
        delay_s: smallest measured round trip.
        most: that there is room for.
        in_a_call: batches that travel in one call.
    """
    return min(most, LEAST * in_a_call + math.ceil(GAIN * rate * delay_s))


def together(rate: float, update_s: float, most: int) -> int:
    """Batches that travel in one call.

    Args:
        rate: as of `allowed`.
        update_s: that the learner needs for one of them.
        most: as of `allowed`.
    """
    learned = CALL_S / max(update_s, SHORTEST_S)
    return max(1, min(most // (2 * LEAST), int(min(learned, rate * CALL_S))))


class InFlight:
    """Measures rate and delay of one link.

    The quarter more waits somewhere, so delays that are measured meanwhile contain that wait. So
    when the smallest delay is old, only as few batches as possible are let go until one of these
    has been answered.

    Attributes:
        limit: batches that may be on their way now.
        together: of these, how many travel in one call.
        delay_s: smallest round trip of late, seconds; 0 before the first answer.
        answer_s: smallest time from a batch to its answer of late, with what the learner held it
            for, seconds; 0 before the first answer.
    """

    def __init__(self) -> None:
        self._answers: deque[float] = deque()
        self._rates: deque[tuple[float, float]] = deque()
        self.forget()

    def forget(self) -> None:
        """Begin anew: the link was cut."""
        self._answers.clear()
        self._rates.clear()
        self.limit, self.together = LEAST, 1
        self.delay_s = self.answer_s = 0.0
        self._bytes = 1.0
        self._answer_at = -math.inf
        self._delay_at = -math.inf
        self._update_s: float | None = None
        self._drained_at: float | None = None

    def sent(self, size: int) -> None:
        """Take into account how many bytes a batch takes that begins its way."""
        # Larger ones count at once: the limit must hold for them.
        self._bytes = max(size, self._bytes + (size - self._bytes) / AVERAGED)

    def answered(
        self, sent: float, held_s: float | None, now: float, update_s: float | None = None
    ) -> None:
        """Take an answer into account.

        Args:
            sent: when the batch began its way, seconds.
            held_s: from its arrival at the learner to the beginning of the answer's way. If None,
                the batch was sent more than once, so nobody knows how long which of them travelled
                (P. Karn and C. Partridge, Improving Round-Trip Time Estimates in Reliable Transport
                Protocols, SIGCOMM 1987, doi:10.1145/55482.55484), or its answer waited for others.
            now: when the answer came.
            update_s: that its update took. If None, nothing was learned.
        """
        if update_s is not None:
            before = update_s if self._update_s is None else self._update_s
            self._update_s = before + (update_s - before) / AVERAGED
        if held_s is not None:
            self._note_delay(sent, max(SHORTEST_S, now - sent - held_s), now)
            self._note_answer(now - sent, now)
        self._note_rate(now)
        if self._drained_at is not None or not self._rates:
            self.limit, self.together = LEAST, 1
        else:
            rate = self._rates[0][1]
            update_s = math.inf if self._update_s is None else self._update_s
            most = max(LEAST, min(MOST_IN_FLIGHT, int(MOST_BYTES / self._bytes)))
            self.together = together(rate, update_s, most)
            self.limit = allowed(rate, self.delay_s, most, self.together)

    def _note_delay(self, sent: float, delay: float, now: float) -> None:
        drained = self._drained_at is not None and sent >= self._drained_at
        if delay <= self.delay_s or not self.delay_s or drained:
            self.delay_s, self._delay_at, self._drained_at = delay, now, None
        elif self._drained_at is None and now - self._delay_at > MEMORY_S:
            # What is on its way now is answered within the time that this batch took.
            self._drained_at = 2 * now - sent

    def _note_answer(self, took: float, now: float) -> None:
        if took <= self.answer_s or not self.answer_s or now - self._answer_at > MEMORY_S:
            self.answer_s, self._answer_at = took, now

    def _note_rate(self, now: float) -> None:
        # Over less than some delays it would be chance how many answers fall into it.
        over = max(RATE_DELAYS * self.delay_s, LEAST_RATE_S)
        self._answers.append(now)
        while self._answers[0] < now - over:
            self._answers.popleft()
        span = now - self._answers[0]
        if len(self._answers) >= LEAST_ANSWERS and span > 0.0:
            rate = (len(self._answers) - 1) / span
            # The first is always the largest: what is older than a larger one counts no more.
            while self._rates and self._rates[-1][1] <= rate:
                self._rates.pop()
            self._rates.append((now, rate))
        while self._rates and self._rates[0][0] < now - MEMORY_S:
            self._rates.popleft()
