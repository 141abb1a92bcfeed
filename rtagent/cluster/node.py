"""What a buffer node sends, wherever the replay is: numbered messages, remembered until answered.

What its world generates is counted here, from the ledger, and never taken from the learner: that
count would stand still while the link is cut, and begin anew with a learner that is started again.

Why it is correct. A message has a number, and is remembered until its answer comes, and forgotten
then: so an answer is taken once, however often message and answer are repeated. The learner takes
the messages in in the order of their numbers (`session.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from rtagent.cluster.message import Bytes, Message
from rtagent.learning.replay.replay import ROWS_PER_REFRESH, Replay
from rtagent.memory.frames import Ints

NOTHING: Ints = np.empty(0, np.int64)


class Settings(NamedTuple):
    """What its daemon's settings in force say of a share.

    Attributes:
        batch_size: transitions of a whole batch.
        learning_rate: Adam's step size.
        beta: exponent of the importance weights.
    """

    batch_size: int
    learning_rate: float
    beta: float


class Sent(NamedTuple):
    """A message on its way.

    Attributes:
        seq: its number.
        block: the message, to be repeated if need be.
        frames: (B,) which transitions it holds; none if the learner samples.
        priority: mean of its priorities when they were sampled. If None, all are the same, or the
            learner samples.
        unpacked_bytes: that its batch takes at the learner; 0 if the learner samples.
    """

    seq: int
    block: Bytes
    frames: Ints = NOTHING
    priority: float | None = None
    unpacked_bytes: int = 0


@dataclass
class Counts:
    """What has been counted since the process began.

    Attributes:
        shipped: transitions that have been sent, repetitions left out; ticks, if the learner
            samples.
        bytes_up: of their messages, repetitions included.
        bytes_down: of answers and weights.
        samples: transitions that have been learned from.
        stale_priorities: of transitions that the ring had lost when the answer came.
        frames: that the transitions needed.
        cache_hits: of these, those that did not have to travel.
        lost: ticks that the ring lost before they could be sent.
    """

    shipped: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    samples: int = 0
    stale_priorities: int = 0
    frames: int = 0
    cache_hits: int = 0
    lost: int = 0


class Node(ABC):
    """One buffer node's messages to the learner.

    Args:
        replay: of its world, used by nobody else.

    Attributes:
        counts: what has been counted.
        under_way: messages without an answer, by their numbers.
    """

    def __init__(self, replay: Replay) -> None:
        self._replay = replay
        self.counts = Counts()
        self.under_way: dict[int, Sent] = {}
        self._next_seq = 0

    def begin_session(self, expected: int, slots: int) -> None:
        """Begin anew, with the first number; what was sent before is forgotten.

        Args:
            expected: as `Welcome` says.
            slots: frames that the learner keeps for this node.
        """
        self._next_seq = 0
        self.under_way.clear()

    @property
    @abstractmethod
    def ticks(self) -> int:
        """Ticks that can be learned from."""

    @property
    def generated(self) -> int:
        """Transitions that the world has made in this process' life, whether or not any is sent."""
        self._look()
        return self._replay.index.span[1]

    def slots_for(self, count: int) -> int:
        """Frames that the learner must keep for this node, at least, to be sent a message.

        Args:
            count: transitions of the message.
        """
        return 0

    @abstractmethod
    def make(self, count: int, settings: Settings) -> Sent | None:
        """The next message.

        Args:
            count: transitions that shall be learned from; 0: none, for now.
            settings: in force.

        Returns:
            The message, which is under way from now on; None if there is nothing to send.
        """

    def answered(self, answer: Message) -> Sent | None:
        """Take an answer; the message that it answers, or None for a repetition."""
        sent = self.under_way.pop(int(answer.values["seq"]), None)
        if sent is not None:
            self.counts.samples += int(answer.values["learned"])
        return sent

    def _look(self) -> None:
        """Take in what has happened since the last look."""
        while self._replay.refresh() >= ROWS_PER_REFRESH:
            pass

    def _said(self, settings: Settings) -> dict[str, Any]:
        """Values of the next message, whatever else it says."""
        return {
            "seq": self._next_seq, "batch_size": settings.batch_size,
            "learning_rate": settings.learning_rate, "shipped": self.counts.shipped,
            "generated": self._replay.index.span[1],
        }

    def _send(
        self, block: Bytes, frames: Ints = NOTHING, priority: float | None = None,
        unpacked_bytes: int = 0,
    ) -> Sent:
        """Remember the next message."""
        sent = Sent(self._next_seq, block, frames, priority, unpacked_bytes)
        self.under_way[sent.seq] = sent
        self._next_seq += 1
        return sent
