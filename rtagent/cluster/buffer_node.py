"""The buffer node: the replay beside the world, of which only what was sampled travels.

Algorithm 5 of S. Morishima and H. Matsutani, doi:10.1109/ACCESS.2024.3402835: the sending process
of the buffer to the learner. Receiving from the actors (Algorithm 4) is the frame ring and the
ledger themselves.

Why it is correct. Shares are numbered; each is remembered until its answer comes, and forgotten
then: so its priorities are applied exactly once, however often question and answer are repeated. A
transition that the ring has lost meanwhile has no leaf of its own any more and is left alone
(`memory/priorities.py`); it is counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rtagent.cluster.frame_cache import SentFrames
from rtagent.cluster.message import Bytes, Message, pack
from rtagent.learning.replay.replay import ROWS_PER_REFRESH, Chosen, Replay
from rtagent.memory.frames import FrameRing, Ints

ATTEMPTS = 8
"""Choices of a share until the ring still holds all of it."""


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
    """A share on its way.

    Attributes:
        seq: its number.
        block: the message, to be repeated if need be.
        frames: (B,) which transitions it holds.
        priority: mean of its priorities when they were sampled; None: all are the same.
    """

    seq: int
    block: Bytes
    frames: Ints
    priority: float | None


@dataclass
class Counts:
    """What has been counted since the process began.

    Attributes:
        shipped: transitions that have been sent, repetitions left out.
        bytes_up: of their messages, repetitions included.
        bytes_down: of answers and weights.
        samples: transitions that have been learned from.
        stale_priorities: of transitions that the ring had lost when the answer came.
        frames: that the transitions needed.
        cache_hits: of these, those that did not have to travel.
    """

    shipped: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    samples: int = 0
    stale_priorities: int = 0
    frames: int = 0
    cache_hits: int = 0


class BufferNode:
    """Makes shares of batches, and takes their answers.

    Args:
        replay: used by nobody else.
        ring: its frames.
        slots: frames that the learner keeps for this node.
        rng: chooses transitions.
    """

    def __init__(
        self, replay: Replay, ring: FrameRing, slots: int, rng: np.random.Generator
    ) -> None:
        self._replay, self._ring, self._rng = replay, ring, rng
        self._slots = slots
        self._offsets = np.arange(ring.stack) + (1 - ring.stack)
        self.counts = Counts()
        self.under_way: dict[int, Sent] = {}
        self.begin_session()

    def begin_session(self) -> None:
        """Begin anew with a learner that knows nothing of this node: what was sent is forgotten."""
        self._next_seq = 0
        self._sent_frames = SentFrames(self._slots, self._ring.capacity)
        self.under_way.clear()

    @property
    def generated(self) -> int:
        """Transitions that the world has made so far in this process' life."""
        return self._replay.index.span[1]

    def make(self, count: int, settings: Settings) -> Sent | None:
        """The next share.

        Args:
            count: transitions.
            settings: in force.

        Returns:
            The share, which is under way from now on; None if there is nothing to sample.
        """
        while self._replay.refresh() >= ROWS_PER_REFRESH:
            pass
        for _ in range(ATTEMPTS):
            chosen = self._replay.choose(count, self._rng, settings.beta)
            if chosen is None:
                return None
            numbers = self._numbers(chosen)
            unique, inverse = np.unique(numbers, return_inverse=True)
            absent = ~self._sent_frames.holds(unique)
            pixels, _, whole = self._ring.read(unique[absent])
            # The starts of the episodes were right if the newest frames are still there.
            if whole.all() and self._ring.hold(chosen.transitions.frame).all():
                placed = unique, inverse.reshape(numbers.shape), pixels
                return self._send(chosen, *placed, settings)
        return None

    def answered(self, answer: Message) -> Sent | None:
        """Apply the priorities of an answer; the share that it answers, None: a repetition."""
        sent = self.under_way.pop(int(answer.values["seq"]), None)
        if sent is None:
            return None
        errors = np.array(answer.arrays["errors"], np.float32)
        self.counts.samples += len(errors)
        self.counts.stale_priorities += int(np.count_nonzero(sent.frames < self._ring.oldest))
        self._replay.update_errors(sent.frames, errors)
        return sent

    def _numbers(self, chosen: Chosen) -> Ints:
        """The frames of states and successors, (B, 2 * stack)."""
        transitions, ring = chosen.transitions, self._ring
        state = transitions.frame
        # Both are of one episode. What follows a terminal state has no value: any frame will do.
        following = np.where(transitions.terminal, state, transitions.next_frame)
        starts = np.minimum(ring.episode_starts.take(state % ring.capacity), state)
        newest = np.stack((state, following), axis=1)
        numbers = np.maximum(newest[:, :, None] + self._offsets, starts[:, None, None])
        return np.ascontiguousarray(numbers.reshape(len(state), -1), np.int64)

    def _send(
        self, chosen: Chosen, unique: Ints, inverse: Ints, pixels: npt.NDArray[np.generic],
        settings: Settings,
    ) -> Sent:
        slots, new = self._sent_frames.place(unique)
        transitions, count = chosen.transitions, len(chosen.transitions)
        weights = np.ones(count) if chosen.weights is None else chosen.weights
        priorities = chosen.priorities
        block = pack(
            {
                "seq": self._next_seq, "generated": self.generated,
                "batch_size": settings.batch_size, "learning_rate": settings.learning_rate,
            },
            {
                "slots": slots[inverse].astype(np.int32),
                "new_slots": slots[new].astype(np.int32),
                "new_frames": pixels,
                "actions": _action(transitions.action),
                "rewards": transitions.reward,
                "discounts": transitions.discount,
                "terminals": transitions.terminal,
                "weights": weights.astype(np.float32),
                "demonstrated": transitions.demonstrated,
            },
        )
        mean = None if priorities is None else float(np.mean(priorities))
        sent = Sent(self._next_seq, block, transitions.frame.copy(), mean)
        self.under_way[sent.seq] = sent
        self._next_seq += 1
        self.counts.shipped += count
        self.counts.frames += len(unique)
        self.counts.cache_hits += len(unique) - len(pixels)
        return sent


def _action(action: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    """Discrete ones as torch wants them for an index."""
    return action.astype(np.int64 if action.dtype.kind == "i" else np.float32)
