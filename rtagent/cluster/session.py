"""What the learner knows of one buffer node, from its joining to its next joining.

Why it is correct. Shares are numbered, and taken in exactly in this order: one that comes too early
waits, one that comes again has the answer of the first. So nothing is learned twice, and the frames
that the learner keeps are those that the node believes in (`frame_cache.py`). Whoever uses a
session holds the learner's condition.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from rtagent.cluster.message import Bytes, Message, pack, unpack
from rtagent.cluster.mirror import Mirror
from rtagent.cluster.sampled import Columns, SampledThere
from rtagent.errors import UserError

RATE_S, FIRST_RATE_S = 2.0, 0.5
"""Over which the rate of a node's transitions is averaged; and the first time, so that the shares
follow soon."""
KEPT_ANSWERS = 256
"""Answers that are kept for a node that asks again."""
MOST_EARLY = 256
"""Messages of a node that may wait for an earlier one."""


@dataclass(frozen=True)
class Share:
    """A node's part of a batch.

    Attributes:
        seq: its number.
        came: when it came, seconds: what the learner holds it for is no time of the link.
        draw: gives arrays (n, ...) by the names of `Batch`. If None, nothing is learned from.
        answer: for the node.
    """

    seq: int
    came: float
    draw: Callable[[], Columns | None]
    answer: Future[Bytes]


class Session:
    """One node's session.

    Args:
        number: of the session; later ones are larger.
        source: of the node's transitions.
        batch_size: that its daemon is configured with.
        learning_rate: likewise.
        now: seconds.

    Attributes:
        queue: shares that wait to be learned from.
        sent_at: when the node's last message came, seconds.
        called_at: when the node last made any call that names it, seconds. A node that is paused
            sends nothing, but calls.
        missed: it had no share ready when the others had, and has had none since.
        rate: transitions that its world generates, per second.
        shipped: transitions that it says it has sent.
        learned: transitions of it that were learned from.
    """

    def __init__(
        self, number: int, source: SampledThere | Mirror, batch_size: int, learning_rate: float,
        now: float,
    ) -> None:
        self.source = source
        self.number, self.batch_size, self.learning_rate = number, batch_size, learning_rate
        self.queue: deque[Share] = deque()
        self.sent_at = self.called_at = now
        self.missed = False
        self.shipped = self.learned = 0
        self.rate = 0.0
        self._next_seq = 0
        self._early: dict[int, tuple[Message, Future[Bytes], float]] = {}
        self._answers: dict[int, Future[Bytes]] = {}
        self._mark: tuple[float, int] | None = None

    def offer(self, block: Bytes, now: float) -> Future[Bytes]:
        """Take in a share, and those that have waited for it.

        Args:
            block: a message of `buffer_node.py`.
            now: seconds.

        Raises:
            UserError: the node must join anew.
            MessageError: these bytes are no share.
        """
        message = unpack(block)
        seq = int(message.values["seq"])
        self.sent_at = self.called_at = now
        if (again := self._answers.get(seq)) is not None:
            return again
        if seq in self._early:
            return self._early[seq][1]
        if seq < self._next_seq or len(self._early) >= MOST_EARLY:
            raise UserError(f"share {seq} is not expected: join anew")
        answer: Future[Bytes] = Future()
        # Who no longer waits must not cancel it: it is learned from, and others may wait.
        answer.set_running_or_notify_cancel()
        self._early[seq] = message, answer, now
        while (due := self._early.pop(self._next_seq, None)) is not None:
            self._take_in(*due)
        return answer

    def end(self) -> None:
        """Refuse what has not been learned from: its node has joined anew, or is gone."""
        waiting = [each.answer for each in self.queue]
        for answer in [*waiting, *(answer for _, answer, _ in self._early.values())]:
            answer.set_exception(UserError("the session is over: join anew"))

    def _take_in(self, message: Message, answer: Future[Bytes], came: float) -> None:
        """Put what came into place, and the share into the queue."""
        seq, values = self._next_seq, message.values
        self._next_seq += 1
        self._answers[seq] = answer
        self._answers.pop(seq - KEPT_ANSWERS, None)
        self.batch_size = int(values["batch_size"])
        self.learning_rate = float(values["learning_rate"])
        self.shipped = int(values.get("shipped", 0))
        draw = self.source.take_in(message)
        self._note_generated(self.sent_at)
        if draw is None:
            said = {"seq": seq, "learned": 0, "held_s": self.sent_at - came}
            answer.set_result(pack(said, {}))
        else:
            self.queue.append(Share(seq, came, draw, answer))
            # Not by any message: with the replay here, ticks travel where nothing is learned, too.
            self.missed = False

    def _note_generated(self, now: float) -> None:
        generated = self.source.generated
        if self._mark is None:
            self._mark = now, generated
        elif now - self._mark[0] >= (RATE_S if self.rate else FIRST_RATE_S):
            self.rate = (generated - self._mark[1]) / (now - self._mark[0])
            self._mark = now, generated
