"""The buffer node: samples the replay beside the world, and sends the sampled transitions alone.

This is Algorithm 5 of S. Morishima and H. Matsutani, doi:10.1109/ACCESS.2024.3402835: how the
buffer sends to the learner. In the place of Algorithm 4, how it receives from the actors, are the
frame ring and the ledger.

Why it is correct. An answer is used once (`node.py`), and so are the priorities in it. A transition
that the ring has lost meanwhile has no leaf in the sum tree any more: its priority is ignored
(`memory/priorities.py`) and counted as stale.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rtagent.cluster.frame_cache import SentFrames
from rtagent.cluster.message import Kind, Message, MessageError, lay_out
from rtagent.cluster.node import Node, Sent, Settings
from rtagent.cluster.received_shares import LARGEST_WEIGHT
from rtagent.learning.replay.batch import ACTION_DTYPES
from rtagent.learning.replay.replay import Chosen, Replay
from rtagent.memory.frames import FrameRing, Ints

SLOT = np.dtype(np.int32)
ATTEMPTS = 8
"""How often a share is sampled, at most, until the ring still holds all of its frames."""


class BufferNode(Node):
    """Makes this node's shares of batches, and takes the answers to them.

    Args:
        replay: used by nobody else.
        ring: frames of the replay.
        slots: number of frames that the learner keeps for this node in the first session.
        rng: samples transitions.
    """

    def __init__(
        self, replay: Replay, ring: FrameRing, slots: int, rng: np.random.Generator
    ) -> None:
        super().__init__(replay)
        self._ring, self._rng = ring, rng
        self._offsets = np.arange(ring.stack) + (1 - ring.stack)
        self._sent_frames = SentFrames(slots, ring.capacity)

    def begin_session(self, expected: int, slots: int) -> None:
        super().begin_session(expected, slots)
        self._sent_frames = SentFrames(slots, self._ring.capacity)

    def slots_for(self, count: int) -> int:
        return count * 2 * self._ring.stack

    @property
    def ticks(self) -> int:
        return self._replay.ticks

    def make(self, count: int, settings: Settings) -> Sent | None:
        if not count:
            return None
        self._replay.catch_up()
        for _ in range(ATTEMPTS):
            chosen = self._replay.choose(count, self._rng, settings.beta)
            if chosen is None:
                return None
            sent = self._share(chosen, settings)
            if sent is not None:
                return sent
        return None

    def answered(self, answer: Message) -> Sent | None:
        """Apply the priorities in the answer, too.

        Raises:
            MessageError: it has another number of them than the message had transitions.
        """
        sent = super().answered(answer)
        if sent is None:
            return None
        errors = np.array(answer.arrays["errors"], np.float32)
        if errors.shape != sent.frames.shape:
            raise MessageError(f"errors {errors.shape} for {len(sent.frames)} transitions")
        self.counts.stale_priorities += int(np.count_nonzero(sent.frames < self._ring.oldest))
        self._replay.update_errors(sent.frames, errors)
        return sent

    def _numbers(self, chosen: Chosen) -> Ints:
        """Numbers of the frames of states and successors, (B, 2 * stack)."""
        transitions, ring = chosen.transitions, self._ring
        state = transitions.frame
        # Both are of one episode. The successor of a terminal state is not used: any frame will do.
        following = np.where(transitions.terminal, state, transitions.next_frame)
        starts = np.minimum(ring.episode_starts.take(state % ring.capacity), state)
        newest = np.stack((state, following), axis=1)
        numbers = np.maximum(newest[:, :, None] + self._offsets, starts[:, None, None])
        return np.ascontiguousarray(numbers.reshape(len(state), -1), np.int64)

    def _share(self, chosen: Chosen, settings: Settings) -> Sent | None:
        """A message of these transitions; None if the ring has lost a frame of them meanwhile."""
        transitions, ring, counts = chosen.transitions, self._ring, self.counts
        numbers = self._numbers(chosen)
        unique, inverse = np.unique(numbers, return_inverse=True)
        absent = unique[~self._sent_frames.holds(unique)]
        columns, count = _columns(chosen), len(transitions)
        values = {
            **self._values(settings), "shipped": counts.shipped + count,
            LARGEST_WEIGHT: self._replay.largest_weight(chosen.priorities, settings.beta),
        }
        block, places = lay_out(values, {
            "slots": Kind(SLOT, numbers.shape),
            "new_slots": Kind(SLOT, absent.shape),
            "new_frames": Kind(ring.frames.dtype, absent.shape + ring.frames.shape[1:]),
            **{name: Kind(each.dtype, each.shape) for name, each in columns.items()},
        })
        *_, whole = ring.read(absent, places["new_frames"])
        # If the newest frames are still there, the starts of their episodes were read right.
        if not (whole.all() and ring.hold(transitions.frame).all()):
            return None
        slots, new = self._sent_frames.place(unique)
        columns |= {"slots": slots[inverse].reshape(numbers.shape), "new_slots": slots[new]}
        for name, each in columns.items():
            places[name][...] = each
        counts.shipped += count
        counts.frames += len(unique)
        counts.cache_hits += len(unique) - len(absent)
        priorities = chosen.priorities
        mean = None if priorities is None else float(np.mean(priorities))
        unpacked = numbers.size * ring.frames[0].nbytes
        return self._keep(Sent(
            self._next_seq, block, frames=transitions.frame.copy(), priority=mean,
            unpacked_bytes=unpacked,
        ))


def _columns(chosen: Chosen) -> dict[str, npt.NDArray[Any]]:
    """The columns of transitions that are sent, other than their frames."""
    transitions, weights = chosen.transitions, chosen.weights
    actions = transitions.action
    return {
        "actions": actions.astype(ACTION_DTYPES[actions.dtype.kind]),
        "rewards": transitions.reward,
        "discounts": transitions.discount,
        "terminals": transitions.terminal,
        "weights": np.ones(len(transitions), np.float32) if weights is None
        else weights.astype(np.float32),
        "demonstrated": transitions.demonstrated,
    }
