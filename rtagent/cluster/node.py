"""The messages of a buffer node: numbered, and kept until they are answered.

The transitions that the world generates are counted here, from the ledger. The learner's count
would stand still while the link is cut, and would begin at 0 when the learner is started again.
A cut link ends the gateway, too: the next gateway counts on from what this one has written.

Why it is correct. A message is kept under its number until its answer comes, and is then forgotten.
So an answer is used once, however often message and answer are repeated. The learner processes the
messages in the order of their numbers (`session.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from rtagent.cluster.message import Bytes, Message
from rtagent.learning.replay.replay import Replay
from rtagent.memory.frames import Ints

NOTHING: Ints = np.empty(0, np.int64)


class Settings(NamedTuple):
    """The settings in force at the daemon that a message carries.

    Attributes:
        batch_size: transitions of a whole batch.
        learning_rate: Adam's step size.
        beta: exponent of the importance weights.
    """

    batch_size: int
    learning_rate: float
    beta: float


class Sent(NamedTuple):
    """A message that has no answer yet.

    Attributes:
        seq: its number.
        block: the message, in case it must be sent again.
        learns: whether it asks the learner to learn.
        frames: (B,) frame numbers of its transitions; empty if the learner samples.
        priority: mean priority of its transitions when they were sampled. If None, sampling is
            uniform, or the learner samples.
        unpacked_bytes: memory that its batch takes at the learner; 0 if the learner samples.
    """

    seq: int
    block: Bytes
    learns: bool = True
    frames: Ints = NOTHING
    priority: float | None = None
    unpacked_bytes: int = 0


@dataclass
class Counts:
    """What has been counted in this run.

    Attributes:
        shipped: transitions that have been sent, or ticks if the learner samples; repetitions do
            not count.
        bytes_up: sent to the learner, with repetitions.
        bytes_down: received from the learner.
        samples: transitions that have been learned from.
        stale_priorities: priorities that came back for transitions that the ring had lost by then.
        frames: frames that the sent transitions consist of.
        cache_hits: of these frames, those that were not sent, because the learner had them.
        lost: ticks that the ring lost before they could be sent.
        generated_until: one past the newest frame that a counted transition begins with.
        shipped_until, lost_until: the next tick that counts as shipped, or as lost: the same tick
            may come again in a later session, or in a later process.
    """

    shipped: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    samples: int = 0
    stale_priorities: int = 0
    frames: int = 0
    cache_hits: int = 0
    lost: int = 0
    generated_until: int = 0
    shipped_until: int = 0
    lost_until: int = 0


class Node(ABC):
    """Makes one buffer node's messages to the learner, and takes the answers.

    Args:
        replay: of the node's world, used by nobody else.

    Attributes:
        counts: what has been counted.
        under_way: messages without an answer, by their numbers.
    """

    def __init__(self, replay: Replay) -> None:
        self._replay = replay
        self.counts = Counts()
        self.under_way: dict[int, Sent] = {}
        self._next_seq = self._overwritten = 0

    def count_on(self, generated: int, counts: Counts) -> None:
        """Count on from what was counted by a node before this one.

        Args:
            generated: transitions; some of them may not be in the ledger any more.
            counts: of that node.
        """
        self.counts = counts
        self._replay.catch_up()
        first, stop = self._replay.index.span
        frames = self._replay.index.frames(first, stop)
        # Those that came since then were not counted.
        again = first + int(np.searchsorted(frames, counts.generated_until))
        self._overwritten = max(0, generated - again)

    def begin_session(self, expected: int, slots: int) -> None:
        """Begin again with message 0, and forget the messages without an answer.

        Args:
            expected: see `Welcome`.
            slots: number of frames that the learner keeps for this node.
        """
        self._next_seq = 0
        self.under_way.clear()

    @property
    @abstractmethod
    def ticks(self) -> int:
        """Number of ticks that can be learned from."""

    @property
    def generated(self) -> int:
        """Transitions that the world has generated, sent or not."""
        self._replay.catch_up()
        index = self._replay.index
        if stop := index.span[1]:
            self.counts.generated_until = int(index.frames(stop - 1, stop)[0]) + 1
        return self._overwritten + stop

    def slots_for(self, count: int) -> int:
        """Number of frames that the learner must keep for this node, at least.

        Args:
            count: transitions of the largest message.
        """
        return 0

    @abstractmethod
    def make(self, count: int, settings: Settings) -> Sent | None:
        """Make the next message.

        Args:
            count: transitions that shall be learned from; 0 if none shall be now.

        Returns:
            The message, which counts as under way from now on; None if there is nothing to send.
        """

    def answered(self, answer: Message) -> Sent | None:
        """Take an answer; the message that it answers, or None if the answer came before."""
        sent = self.under_way.pop(int(answer.values["seq"]), None)
        if sent is not None:
            self.counts.samples += int(answer.values["learned"])
        return sent

    def _values(self, settings: Settings) -> dict[str, Any]:
        """Values that every message has, for the next one."""
        return {
            "seq": self._next_seq, "batch_size": settings.batch_size,
            "learning_rate": settings.learning_rate, "shipped": self.counts.shipped,
            "generated": self._overwritten + self._replay.index.span[1],
        }

    def _keep(self, sent: Sent) -> Sent:
        """Keep the next message until it is answered."""
        self.under_way[sent.seq] = sent
        self._next_seq += 1
        return sent
