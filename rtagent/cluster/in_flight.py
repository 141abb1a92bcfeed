"""How many batches may be in flight: as many as keep the learner busy, and no more.

A link is full, without a queue in it, when rate times delay is in flight. Both are measured over a
window of time (as N. Cardwell et al., BBR: Congestion-Based Congestion Control, Communications of
the ACM 60(2), 2017, doi:10.1145/3009824, estimate a path): the rate is the largest at which answers
came, and the delay is the smallest round trip of the link alone, from a batch to its answer without
the time for which the learner says that it held the batch. A quarter more than rate times delay is
allowed, so that a link that has become faster is noticed. The calls that the learner works on, and
that wait for it there, come on top, since the learner is no part of the link.

A call of Ray costs some milliseconds of processor time, at both ends and between them, whatever it
carries. So batches that are learned from quickly share a call, unless the link is slow.

A message lies in Ray's object store, which writes to disk what it has no room for, and a batch lies
in the learner's memory until it is learned from. So the bytes in flight are bounded, too.
"""

from __future__ import annotations

import math
from collections import deque

MOST_IN_FLIGHT = 64
"""Batches in flight at most, whatever is measured."""
GAIN = 1.25
MEMORY_S = 10.0
"""Window of time over which measurements count."""
RATE_DELAYS, LEAST_RATE_S, LEAST_ANSWERS = 4.0, 1.0, 3
"""A rate is measured over so many delays, so many seconds, and so many answers, at least."""
LEAST = 2
"""Calls at the learner: one whose batches are learned from, and one that waits."""
CALL_S = 0.1
"""A call carries as many batches as the learner learns from, and as the link carries, in this time,
and one at least."""
MOST_BYTES = 128 << 20
"""Bytes in flight at most, unless `LEAST` batches alone have more."""
AVERAGED = 8
"""Number of updates and messages over which their time and their size are averaged."""
SHORTEST_S = 1e-6
"""Shortest round trip: less may be measured, since the clocks of both ends differ a little."""


def allowed_in_flight(rate: float, delay_s: float, most: int, per_call: int = 1) -> int:
    """Batches that may be in flight.

    Args:
        rate: largest measured rate of answers, per second.
        delay_s: smallest measured round trip.
        most: batches that there is room for.
        per_call: batches in one call.
    """
    return min(most, LEAST * per_call + math.ceil(GAIN * rate * delay_s))


def batches_per_call(rate: float, update_s: float, most: int) -> int:
    """Batches that are sent in one call.

    Args:
        rate: largest measured rate of answers, per second.
        update_s: time that the learner needs for one batch.
        most: batches that there is room for.
    """
    learned = CALL_S / max(update_s, SHORTEST_S)
    return max(1, min(most // (2 * LEAST), int(min(learned, rate * CALL_S))))


class InFlight:
    """Measures rate and delay of one link.

    The quarter more waits somewhere on the link, and every delay that is measured contains that
    wait. So when the smallest delay is older than the window, the link is drained: `LEAST` batches
    alone are in flight, until one of these has been answered.

    Attributes:
        limit: batches that may be in flight now.
        per_call: batches that are sent in one call.
        delay_s: smallest round trip in the window, seconds; 0 before the first answer.
        answer_s: smallest time from a batch to its answer in the window, with the time for which
            the learner held the batch, seconds; 0 before the first answer.
    """

    def __init__(self) -> None:
        self._answers: deque[float] = deque()
        self._rates: deque[tuple[float, float]] = deque()
        self.limit, self.per_call = LEAST, 1
        self.delay_s = self.answer_s = 0.0
        self._bytes = 1.0
        self._answer_at = -math.inf
        self._delay_at = -math.inf
        self._update_s: float | None = None
        self._drained_at: float | None = None

    def sent(self, size: int) -> None:
        """Note the bytes of a batch that is sent."""
        # A larger batch counts at once: the limit must hold for it.
        self._bytes = max(size, self._bytes + (size - self._bytes) / AVERAGED)

    def answered(
        self, sent: float, held_s: float | None, now: float, update_s: float | None = None
    ) -> None:
        """Note an answer.

        Args:
            sent: when the batch was sent, seconds.
            held_s: time from the arrival of the batch at the learner until its answer was sent. If
                None, no round trip is measured: the batch was sent more than once, and the answer
                may belong to either (P. Karn and C. Partridge, Improving Round-Trip Time Estimates
                in Reliable Transport Protocols, SIGCOMM 1987, doi:10.1145/55482.55484), or the
                answer has waited for others of the same call.
            now: when the answer came.
            update_s: time that the update took. If None, nothing was learned.
        """
        if update_s is not None:
            before = update_s if self._update_s is None else self._update_s
            self._update_s = before + (update_s - before) / AVERAGED
        if held_s is not None:
            self._note_delay(sent, max(SHORTEST_S, now - sent - held_s), now)
            self._note_answer(now - sent, now)
        self._note_rate(now)
        if self._drained_at is not None or not self._rates:
            self.limit, self.per_call = LEAST, 1
        else:
            rate = self._rates[0][1]
            update_s = math.inf if self._update_s is None else self._update_s
            most = max(LEAST, min(MOST_IN_FLIGHT, int(MOST_BYTES / self._bytes)))
            self.per_call = batches_per_call(rate, update_s, most)
            self.limit = allowed_in_flight(rate, self.delay_s, most, self.per_call)

    def _note_delay(self, sent: float, delay: float, now: float) -> None:
        drained = self._drained_at is not None and sent >= self._drained_at
        if delay <= self.delay_s or not self.delay_s or drained:
            self.delay_s, self._delay_at, self._drained_at = delay, now, None
        elif self._drained_at is None and now - self._delay_at > MEMORY_S:
            # All batches in flight now are answered within the time that this batch took.
            self._drained_at = 2 * now - sent

    def _note_answer(self, took: float, now: float) -> None:
        if took <= self.answer_s or not self.answer_s or now - self._answer_at > MEMORY_S:
            self.answer_s, self._answer_at = took, now

    def _note_rate(self, now: float) -> None:
        # In less time than some delays, the number of answers would be chance.
        over = max(RATE_DELAYS * self.delay_s, LEAST_RATE_S)
        self._answers.append(now)
        while self._answers[0] < now - over:
            self._answers.popleft()
        span = now - self._answers[0]
        if len(self._answers) >= LEAST_ANSWERS and span > 0.0:
            rate = (len(self._answers) - 1) / span
            # The first rate is always the largest: a rate older than a larger one never counts.
            while self._rates and self._rates[-1][1] <= rate:
                self._rates.pop()
            self._rates.append((now, rate))
        while self._rates and self._rates[0][0] < now - MEMORY_S:
            self._rates.popleft()
