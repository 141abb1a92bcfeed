"""The buffer node: the replay beside the world, of which only what was sampled travels.

Algorithm 5 of S. Morishima and H. Matsutani, doi:10.1109/ACCESS.2024.3402835: the sending process
of the buffer to the learner. Receiving from the actors (Algorithm 4) is the frame ring and the
ledger themselves.

Why it is correct. An answer is taken once (`node.py`), and so are its priorities. A transition that
the ring has lost meanwhile has no leaf of its own any more and is left alone
(`memory/priorities.py`); it is counted.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rtagent.cluster.frame_cache import SentFrames
from rtagent.cluster.message import Message
from rtagent.cluster.node import Node, Sent, Settings
from rtagent.learning.replay.replay import ROWS_PER_REFRESH, Chosen, Replay
from rtagent.memory.frames import FrameRing, Ints

ATTEMPTS = 8
"""Choices of a share until the ring still holds all of it."""


class BufferNode(Node):
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
        super().__init__()
        self._replay, self._ring, self._rng = replay, ring, rng
        self._slots = slots
        self._offsets = np.arange(ring.stack) + (1 - ring.stack)
        self._sent_frames = SentFrames(slots, ring.capacity)

    def begin_session(self, expected: int = 0) -> None:
        super().begin_session(expected)
        self._sent_frames = SentFrames(self._slots, self._ring.capacity)

    @property
    def ticks(self) -> int:
        return self._replay.ticks

    @property
    def generated(self) -> int:
        """In this process' life."""
        return self._replay.index.span[1]

    def make(self, count: int, settings: Settings) -> Sent | None:
        if not count:
            return None
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
                return self._share(chosen, *placed, settings)
        return None

    def answered(self, answer: Message) -> Sent | None:
        """Apply its priorities, too."""
        sent = super().answered(answer)
        if sent is None:
            return None
        errors = np.array(answer.arrays["errors"], np.float32)
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

    def _share(
        self, chosen: Chosen, unique: Ints, inverse: Ints, pixels: npt.NDArray[np.generic],
        settings: Settings,
    ) -> Sent:
        slots, new = self._sent_frames.place(unique)
        transitions, count = chosen.transitions, len(chosen.transitions)
        weights = np.ones(count) if chosen.weights is None else chosen.weights
        arrays = {
            "slots": slots[inverse].astype(np.int32),
            "new_slots": slots[new].astype(np.int32),
            "new_frames": pixels,
            "actions": _action(transitions.action),
            "rewards": transitions.reward,
            "discounts": transitions.discount,
            "terminals": transitions.terminal,
            "weights": weights.astype(np.float32),
            "demonstrated": transitions.demonstrated,
        }
        self.counts.shipped += count
        self.counts.frames += len(unique)
        self.counts.cache_hits += len(unique) - len(pixels)
        priorities = chosen.priorities
        mean = None if priorities is None else float(np.mean(priorities))
        generated = {"generated": self.generated}
        return self._send(generated, arrays, settings, transitions.frame.copy(), mean)


def _action(action: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    """Discrete ones as torch wants them for an index."""
    return action.astype(np.int64 if action.dtype.kind == "i" else np.float32)
