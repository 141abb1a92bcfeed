"""What the learner knows of one buffer node, from its joining to its next joining.

Why it is correct. Shares are numbered, and taken in exactly in this order: one that comes too early
waits, one that comes again has the answer of the first. So nothing is learned twice, and the frames
that the learner keeps are those that the node believes in (`frame_cache.py`). Whoever uses a
session holds the learner's condition.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from rtagent.cluster.frame_cache import FrameStore
from rtagent.cluster.message import Bytes, Message, MessageError, unpack
from rtagent.errors import UserError

RATE_S = 2.0
"""Over which the rate of a node's transitions is averaged."""
KEPT_ANSWERS = 256
"""Answers that are kept for a node that asks again."""
MOST_EARLY = 256
"""Messages of a node that may wait for an earlier one."""
COLUMNS = ("actions", "rewards", "discounts", "terminals", "weights", "demonstrated")


@dataclass(frozen=True)
class Share:
    """A node's part of a batch, its frames already in place.

    Attributes:
        seq: its number.
        came: when it came, seconds: what the learner holds it for is no time of the link.
        columns: arrays (n, ...) by the names of `Batch`.
        answer: for the node.
    """

    seq: int
    came: float
    columns: dict[str, Any]
    answer: Future[Bytes]


class Session:
    """One node's session.

    Args:
        number: of the session; later ones are larger.
        store: the node's frames.
        batch_size: that its daemon is configured with.
        learning_rate: likewise.
        now: seconds.

    Attributes:
        queue: shares that wait to be learned from.
        heard: when the node sent last, seconds.
        missed: it had nothing ready when the others had.
        generated: transitions that its world has generated.
        rate: of these, per second.
        learned: transitions of it that were learned from.
    """

    def __init__(
        self, number: int, store: FrameStore, batch_size: int, learning_rate: float, now: float
    ) -> None:
        self.number, self.batch_size, self.learning_rate = number, batch_size, learning_rate
        self.queue: deque[Share] = deque()
        self.heard = now
        self.missed = False
        self.generated = self.learned = 0
        self.rate = 0.0
        self._store = store
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
        self.heard, self.missed = now, False
        if (again := self._answers.get(seq)) is not None:
            return again
        if seq in self._early:
            return self._early[seq][1]
        if seq < self._next_seq or len(self._early) >= MOST_EARLY:
            raise UserError(f"share {seq} is not expected: join anew")
        answer: Future[Bytes] = Future()
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
        """Put frames into place, and the share into the queue."""
        seq, values = self._next_seq, message.values
        self._next_seq += 1
        self._answers[seq] = answer
        self._answers.pop(seq - KEPT_ANSWERS, None)
        self._note_generated(int(values["generated"]), self.heard)
        self.batch_size = int(values["batch_size"])
        self.learning_rate = float(values["learning_rate"])
        self.queue.append(Share(seq, came, _columns(message, self._store), answer))

    def _note_generated(self, generated: int, now: float) -> None:
        self.generated = generated
        if self._mark is None:
            self._mark = now, generated
        elif now - self._mark[0] >= RATE_S:
            self.rate = (generated - self._mark[1]) / (now - self._mark[0])
            self._mark = now, generated


def _columns(message: Message, store: FrameStore) -> dict[str, Any]:
    """The columns of a share, frames included.

    Raises:
        MessageError: something is missing, or does not go together.
    """
    arrays = message.arrays
    try:
        store.put(arrays["new_slots"], arrays["new_frames"])
        stacks = store.stacks(arrays["slots"])
        stack = stacks.shape[1] // 2
        columns = {name: arrays[name] for name in COLUMNS}
    except (KeyError, IndexError, ValueError) as error:
        raise MessageError(f"no share of a batch: {error!r}") from error
    if any(len(each) != len(stacks) for each in columns.values()):
        raise MessageError("no share of a batch: columns of different lengths")
    return {
        **columns, "observations": stacks[:, :stack], "next_observations": stacks[:, stack:],
    }
