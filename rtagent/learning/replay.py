"""Replay without a copy: transitions are indices into the frame ring that everybody shares.

Why it is correct. The environment goes on writing while a batch is copied. It only ever overwrites
the oldest frames, and marks a slot before it touches the pixels; and the supervisor returns the
memory of old frames only after it has raised the ring's floor above them. So a batch is whole if,
after the copy, every slot still carries the number that was wanted, and none of these is older than
the oldest frame of the ring. Samples that fail are drawn again.

Choosing (`sampling.py`) is separate from gathering (`FrameGather`), and both from the index of
transitions (`transitions.py`), so each can be replaced by itself. One thread at a time may use a
`Replay`; only `update_priorities`, `ticks` and `len` may be called by another one meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rtagent.config import LearningConfig
from rtagent.learning.sampling import Drawn, Prioritized, Sampler, Uniform
from rtagent.learning.transitions import DecisionIndex, Flags, Ints, Transitions
from rtagent.memory.frames import FrameRing, Frames
from rtagent.memory.ledger import Ledger
from rtagent.memory.priorities import Priorities

ROWS_PER_REFRESH = 2048
REDRAWS = 8
_ACTION_DTYPES = {"i": np.int64, "f": np.float32}


@dataclass(frozen=True)
class Batch:
    """Transitions ready for an update.

    The frames are to be read only: states and successors may be views of the same memory. Whoever
    hands a batch out says how long it is valid.

    Attributes:
        observations: (B, stack, *frame_shape) uint8 or float32.
        actions: (B,) int64, or (B, n) float32 where they are continuous.
        rewards: (B,) float32.
        discounts: (B,) float32, gamma**n.
        next_observations: as `observations`; undefined where terminal.
        terminals: (B,) bool.
        weights: (B,) float32, importance weights; 1 if all transitions are equally probable.
        frames: (B,) the newest frame of each state: which transitions these are.
        demonstrated: (B,) bool, whose actions are demonstrations; or (1,) for all.
    """

    observations: Tensor
    actions: Tensor
    rewards: Tensor
    discounts: Tensor
    next_observations: Tensor
    terminals: Tensor
    weights: Tensor
    frames: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    demonstrated: Tensor = field(default_factory=lambda: torch.zeros(1, dtype=torch.bool))


class BatchBuffer:
    """Memory for the frames of one batch, used again and again.

    Args:
        ring: the shared frames.
    """

    def __init__(self, ring: FrameRing) -> None:
        self._shape = ring.frames.shape[1:]
        self._frames = np.empty((0, *self._shape), ring.frames.dtype)

    def take(self, count: int, length: int) -> Frames:
        """Memory for `count` runs of `length` frames.

        Returns:
            (count, length, *frame_shape), undefined; what was taken before is not valid any more.
        """
        needed = count * length
        # Large ones are given back: batches may have shrunk for lack of memory.
        if not needed <= len(self._frames) <= 2 * needed:
            self._frames = np.empty((needed, *self._shape), self._frames.dtype)
        return self._frames[:needed].reshape(count, length, *self._shape)


class FrameGather:
    """Copies runs of frames out of the ring.

    Args:
        ring: the shared frames.
    """

    def __init__(self, ring: FrameRing) -> None:
        self._ring = ring
        self._frames = ring.frames.reshape(ring.capacity, -1)
        self._offsets = np.arange(1 - ring.stack, ring.stack + 1)

    def gather(self, numbers: Ints, out: Frames) -> Flags:
        """Copy the stacks that end with the given frames, and the frames that come next.

        Frames before the start of the episode are replaced by its first one.

        Args:
            numbers: (B,) frame numbers.
            out: (B, length, *frame_shape), contiguous, filled; of a length of at most two stacks.
                What follows the stack must be of the same episode.

        Returns:
            (B, length) which frames are the wanted ones.
        """
        ring, length = self._ring, out.shape[1]
        starts = ring.episode_starts.take(numbers % ring.capacity)
        # The slot of a lost frame has its successor's start, which lies after the frame: then the
        # frame itself is wanted, and is not found.
        starts = np.minimum(starts, numbers)
        wanted = np.maximum(numbers[:, None] + self._offsets[:length], starts[:, None])
        slots = wanted % ring.capacity
        self._frames.take(
            slots.ravel(), axis=0, out=out.reshape(-1, self._frames.shape[1]), mode="clip"
        )
        right: Flags = ring.numbers.take(slots) == wanted
        right &= wanted >= ring.oldest
        return right


class Replay:
    """Batches of what really happened.

    Args:
        frames: the shared frames.
        ledger: the shared rows.
        learning: discount, n-step, meaning of a transition, exponent of the priorities.
        priorities: shared by all learners; none: every transition has the same probability.
    """

    def __init__(
        self,
        frames: FrameRing,
        ledger: Ledger,
        learning: LearningConfig,
        priorities: Priorities | None = None,
    ) -> None:
        self._ring = frames
        self._ledger = ledger
        self._sampler: Sampler = (
            Uniform() if priorities is None
            else Prioritized(priorities, learning.priority_exponent)
        )
        self._gather = FrameGather(frames)
        self._next_tick = 0
        self._buffer = self.new_buffer()
        self.index = DecisionIndex(
            frames.capacity,
            ledger.dtype["action"],
            learning.gamma,
            learning.n_step,
            learning.transitions,
        )

    @property
    def ticks(self) -> int:
        """Ticks that the ring holds."""
        return self._ring.newest - self._ring.oldest + 1

    def __len__(self) -> int:
        """Transitions that can be sampled."""
        return len(self.index)

    def new_buffer(self) -> BatchBuffer:
        """Memory of its own for a batch."""
        return BatchBuffer(self._ring)

    def refresh(self) -> int:
        """Take in new rows of the ledger, and forget what the ring has lost.

        Returns:
            Rows taken in; at most `ROWS_PER_REFRESH`, the rest is for the next call.
        """
        start = max(self._next_tick, self._ledger.oldest)
        # A row comes before its frame: a transition is not complete without both.
        newest = min(self._ledger.newest, self._ring.newest)
        stop = min(newest + 1, start + ROWS_PER_REFRESH)
        taken = 0
        if start < stop:
            rows = self._ledger.read(start, stop)
            self.index.feed(rows)
            self._next_tick, taken = stop, len(rows)
        self._sampler.follow(self.index, self._forget())
        return taken

    def sample(
        self,
        count: int,
        rng: np.random.Generator,
        beta: float = 1.0,
        out: BatchBuffer | None = None,
    ) -> Batch | None:
        """Draw a batch.

        Args:
            count: B.
            rng: source of randomness.
            beta: exponent of the importance weights.
            out: where the frames are put; they are valid until it is used again. If none is given,
                until the next call.

        Returns:
            The batch; none if there are no transitions yet, or if the ring lost the samples again
            and again.
        """
        out = self._buffer if out is None else out
        drawn = self._draw(count, rng)
        if drawn is None:
            return None
        chosen = self.index.get(drawn.serials)
        shift = _common_shift(chosen, self._ring.stack)
        if not shift:
            return self._sample_apart(drawn, np.empty(0, np.int64), rng, beta, out)
        frames = out.take(count, self._ring.stack + shift)
        right = self._gather.gather(chosen.frame, frames)
        if np.count_nonzero(right) < right.size:
            right[:, self._ring.stack :] |= chosen.terminal[:, None]
            lost = np.flatnonzero(~right.all(axis=1))
            if len(lost):
                return self._sample_apart(drawn, lost, rng, beta, out)
        return _batch(
            chosen, frames[:, : self._ring.stack], frames[:, shift:], drawn.weights(beta)
        )

    def update_priorities(self, batch: Batch, errors: Tensor) -> None:
        """Say how far off the transitions of a batch were.

        Another thread than that which samples may call this. It waits at most a moment for other
        learners, and then goes without.

        Args:
            batch: as it was sampled.
            errors: (B,); those that are not finite are ignored.
        """
        self._sampler.update(batch.frames, errors.detach().cpu().numpy().astype(np.float64))

    def _sample_apart(
        self, drawn: Drawn, lost: Ints, rng: np.random.Generator, beta: float, out: BatchBuffer
    ) -> Batch | None:
        """Copy states and successors one after the other, and draw anew what is lost.

        Args:
            drawn: (B,) transitions.
            lost: positions in it of those that are known to be lost.
        """
        count = len(drawn.serials)
        both = out.take(2 * count, self._ring.stack)
        observations, following = both[:count], both[count:]
        pending = np.arange(count)
        for _ in range(REDRAWS):
            if len(lost):
                self._sampler.discard(self.index.get(drawn.serials[lost]).frame)
                other = self._draw(len(lost), rng)
                if other is None:
                    return None
                drawn.put(lost, other)
            chosen = self.index.get(drawn.serials[pending])
            whole = self._copy(chosen.frame, observations, pending)
            whole &= self._copy(chosen.next_frame, following, pending) | chosen.terminal
            pending = lost = pending[~whole]
            if not len(pending):
                chosen = self.index.get(drawn.serials)
                return _batch(chosen, observations, following, drawn.weights(beta))
        return None

    def _forget(self) -> int:
        """Forget what the ring has lost; the oldest frame whose stack it still holds."""
        oldest = self._ring.oldest
        # Clamped stacks are shorter than that: the few frames' difference is not worth a look-up.
        oldest += self._ring.stack - 1 if oldest else 0
        self.index.forget(oldest)
        return oldest

    def _draw(self, count: int, rng: np.random.Generator) -> Drawn | None:
        """Choose transitions.

        What is lost is forgotten just before: to read a frame whose memory has been returned would
        take that memory back.
        """
        self._forget()
        if not len(self.index):
            return None
        return self._sampler.draw(count, self.index, rng)

    def _copy(self, numbers: Ints, out: Frames, positions: Ints) -> Flags:
        """Copy stacks (n,) to positions (n,) of `out`; which are whole."""
        part = out
        if len(positions) < len(out):
            part = np.empty((len(positions), *out.shape[1:]), out.dtype)
        whole = np.asarray(self._gather.gather(numbers, part).all(axis=1))
        if part is not out:
            out[positions] = part
        return whole


def _common_shift(chosen: Transitions, stack: int) -> int:
    """Frames from state to successor, if that is the same for all and their stacks overlap; else 0.

    Then one run of stack + shift frames is both: its first and its last `stack` frames. Clamping
    agrees with that, because state and successor are of one episode: frame j of the run is frame
    number max(start, state - stack + 1 + j), which is what the successor's stack wants as its
    frame j - shift. Of a terminal transition, only the first part of the run has a meaning.
    """
    shifts = chosen.next_frame - chosen.frame
    shift = int(shifts[0])
    together = shift <= stack and np.count_nonzero(shifts == shift) == len(shifts)
    return shift if together else 0


def _batch(
    chosen: Transitions,
    observations: Frames,
    next_observations: Frames,
    weights: npt.NDArray[np.float64] | None,
) -> Batch:
    return Batch(
        observations=torch.from_numpy(observations),
        actions=torch.from_numpy(chosen.action.astype(_ACTION_DTYPES[chosen.action.dtype.kind])),
        rewards=torch.from_numpy(chosen.reward.copy()),
        discounts=torch.from_numpy(chosen.discount),
        next_observations=torch.from_numpy(next_observations),
        terminals=torch.from_numpy(chosen.terminal.copy()),
        weights=(
            torch.ones(len(chosen.frame)) if weights is None
            else torch.from_numpy(weights.astype(np.float32))
        ),
        frames=chosen.frame,
        demonstrated=torch.from_numpy(chosen.demonstrated.copy()),
    )
