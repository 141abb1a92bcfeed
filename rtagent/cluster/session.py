"""A session: what the learner knows of one buffer node, from when it joins until it joins again.

Why it is correct. Shares are numbered and processed in exactly this order: a share that comes too
early waits, and a share that comes again gets the answer to the first. So nothing is learned twice,
and the frames that the learner keeps are those that the node has on record (`frame_cache.py`). A
session is used only under the learner's condition.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import NamedTuple

from rtagent.cluster.message import Bytes, Message, MessageError, pack, unpack
from rtagent.cluster.mirror import Mirror
from rtagent.cluster.received_shares import LARGEST_COUNT, Columns, ReceivedShares
from rtagent.config import MOST_BATCH
from rtagent.errors import UserError

RATE_S, FIRST_RATE_S = 2.0, 0.5
"""Time over which the rate of a node's transitions is averaged. It is shorter for the first rate,
so that a new node soon has its share."""
RATE_TRANSITIONS = 4
"""Transitions that a rate is averaged over at least, however long these take: the shares of slow
worlds would change with every tick."""
SILENT_S = 3.0
"""A node that has sent no message for so long is asked for no share, and its rate counts as 0."""
KEPT_ANSWERS = 256
"""Newest answers, which are kept in case that the node sends their shares again."""
MOST_EARLY = 256
"""Messages of a node, at most, that wait for an earlier one."""


@dataclass(frozen=True)
class Share:
    """A node's part of a batch.

    Attributes:
        seq: its number.
        came: when it came, seconds. The node is told how long the learner held the share, and
            subtracts that from its round trip.
        draw: gives arrays (n, ...) by the names of `Batch`; or None if there is nothing to sample.
        answer: to the node.
    """

    seq: int
    came: float
    draw: Callable[[], Columns | None]
    answer: Future[Bytes]


class _Header(NamedTuple):
    """What each message of a node begins with, see `Session`."""

    seq: int
    batch_size: int
    learning_rate: float
    shipped: int
    generated: int


class Session:
    """One node's session.

    Args:
        number: of the session; a later session has a larger number.
        source: gives the node's transitions.
        batch_size: transitions of a whole batch, by the node's settings.
        learning_rate: by the node's settings.
        now: seconds.

    Attributes:
        queue: shares that wait to be learned from.
        sent_at: when the node's last message came, seconds.
        called_at: when the node last made any call that names it, seconds. A node that is paused
            sends nothing, but calls.
        missed: whether the node had no share ready when the other nodes had, and has not been ahead
            with two shares since.
        rate: transitions per second that the node's world generates.
        shipped: transitions that the node has sent, as it says; does not fall.
        learned: transitions of the node that were learned from.
    """

    def __init__(
        self, number: int, source: ReceivedShares | Mirror, batch_size: int, learning_rate: float,
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
        self._early: dict[int, tuple[_Header, Message, Future[Bytes], float]] = {}
        self._answers: dict[int, Future[Bytes]] = {}
        self._mark: tuple[float, int] | None = None

    def offer(self, block: Bytes, now: float) -> Future[Bytes]:
        """Accept a share, and process it and those that have waited for it.

        Args:
            block: a message of `buffer_node.py`.
            now: seconds.

        Raises:
            UserError: the node must join again.
            MessageError: the bytes are no share.
        """
        message = unpack(block)
        header = _header(message)
        seq = header.seq
        self.sent_at = self.called_at = now
        if (again := self._answers.get(seq)) is not None:
            return again
        if seq in self._early:
            return self._early[seq][2]
        if seq < self._next_seq or len(self._early) >= MOST_EARLY:
            raise UserError(f"share {seq} is not expected: join anew")
        answer: Future[Bytes] = Future()
        # A call that is given up must not cancel the answer: a repeated call may wait for it.
        answer.set_running_or_notify_cancel()
        self._early[seq] = header, message, answer, now
        while (due := self._early.pop(self._next_seq, None)) is not None:
            self._process(*due)
        return answer

    def is_silent(self, now: float) -> bool:
        """Whether the node sends nothing, see `SILENT_S`. One whose shares wait here may have to
        wait for an answer before it sends the next."""
        return not self.queue and now - self.sent_at >= SILENT_S

    def end(self) -> None:
        """Refuse what has not been learned from, when the node has joined anew or is gone."""
        waiting = [each.answer for each in self.queue]
        for answer in [*waiting, *(answer for _, _, answer, _ in self._early.values())]:
            answer.set_exception(UserError("the session is over: join anew"))

    def _process(
        self, header: _Header, message: Message, answer: Future[Bytes], came: float
    ) -> None:
        """Store the message's frames, and put its share into the queue."""
        seq = header.seq
        self._next_seq += 1
        self._answers[seq] = answer
        self._answers.pop(seq - KEPT_ANSWERS, None)
        self.batch_size, self.learning_rate = header.batch_size, header.learning_rate
        self.shipped = max(self.shipped, header.shipped)
        self.source.generated = header.generated
        try:
            draw = self.source.receive(message)
        except MessageError as error:
            # The share may have come early, by a call that waits for its answer.
            answer.set_exception(error)
            raise
        self._note_generated(self.sent_at)
        if draw is None:
            values = {"seq": seq, "learned": 0, "held_s": self.sent_at - came}
            answer.set_result(pack(values, {}))
        else:
            self.queue.append(Share(seq, came, draw, answer))
            # Only shares count: with the replay here, ticks also come while learning is paused.
            # One share alone would be waited for again: a node that is slow would hold up others.
            if len(self.queue) > 1:
                self.missed = False

    def _note_generated(self, now: float) -> None:
        generated = self.source.generated
        if self._mark is None:
            self._mark = now, generated
        since, before = self._mark
        # What a node says that it has counted may fall, but no rate is negative.
        seconds, count = now - since, max(0, generated - before)
        if seconds < (RATE_S if self.rate else FIRST_RATE_S):
            return
        if count >= RATE_TRANSITIONS:
            self.rate, self._mark = count / seconds, (now, generated)
        else:
            # The world may have become slower, or stand still.
            self.rate = min(self.rate, (count + 1) / seconds)


def _header(message: Message) -> _Header:
    """What a message begins with.

    Raises:
        MessageError: something is missing, or is no number of its range.
    """
    values = message.values
    try:
        header = _Header(
            int(values["seq"]), int(values["batch_size"]), float(values["learning_rate"]),
            int(values.get("shipped", 0)), int(values.get("generated", 0)),
        )
        if not (
            1 <= header.batch_size <= MOST_BATCH and 0.0 < header.learning_rate <= 1.0
            and 0 <= header.shipped <= LARGEST_COUNT and 0 <= header.generated <= LARGEST_COUNT
        ):
            raise ValueError("a number out of its range")
        return header
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise MessageError(f"no message of a node: {error!r}") from error
