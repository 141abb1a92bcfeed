"""Replay without a copy: transitions are indices into the frame ring that everybody shares.

Why it is correct. The environment goes on writing while a batch is copied. It only ever overwrites
the oldest frames, and marks a slot before it touches the pixels; and the supervisor returns the
memory of old frames only after it has raised the ring's floor above them. So a batch is whole if,
after the copy, every slot still carries the number that was wanted, and none of these is older than
the oldest frame of the ring. Samples that fail are drawn again.

Choosing (`sampling.py`) is separate from gathering (`memory/gather.py`), and both from the index
of transitions (`transitions.py`), so each can be replaced by itself. One thread at a time may use a
`Replay`; only `update_priorities`, `ticks` and `len` may be called by another one meanwhile.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from torch import Tensor

from rtagent.config import LearningConfig
from rtagent.learning.replay.batch import Batch, BatchBuffer, Memory
from rtagent.learning.replay.look_up import Flags, Ints, Transitions
from rtagent.learning.replay.powers import Doubles, Floats
from rtagent.learning.replay.sampling import Drawn, Prioritized, Sampler
from rtagent.learning.replay.transitions import DecisionIndex
from rtagent.memory.frames import FrameRing, Frames
from rtagent.memory.gather import prepare_gather
from rtagent.memory.ledger import Ledger
from rtagent.memory.priorities import Priorities

ROWS_PER_REFRESH = 2048
REDRAWS = 8


class Chosen(NamedTuple):
    """Transitions without their frames.

    Attributes:
        transitions: (B,).
        weights: (B,) importance weights. If None, all are 1.
        priorities: (B,) to which their probabilities were proportional. If None, all are the same.
    """

    transitions: Transitions
    weights: Doubles | None
    priorities: Doubles | None


class Replay:
    """Batches of what really happened.

    Args:
        frames: the shared frames.
        ledger: the shared rows.
        learning: discount, n-step, meaning of a transition, exponent of the priorities.
        priorities: shared by all learners. If None, every transition has the same probability.

    Attributes:
        drawn_priorities: (B,) to which the probabilities of the batch that `sample` drew last
            were proportional. If None, all were the same.
    """

    def __init__(
        self, frames: FrameRing, ledger: Ledger, learning: LearningConfig,
        priorities: Priorities | None = None,
    ) -> None:
        self._ring, self._ledger, self._learning = frames, ledger, learning
        self._sampler = Sampler()
        if priorities is not None:
            self._sampler = Prioritized(priorities, learning.priority_exponent)
        self._next_tick = 0
        self.drawn_priorities: Doubles | None = None
        self.index = DecisionIndex(
            frames.capacity, ledger.dtype["action"], learning.gamma, learning.n_step,
            learning.transitions, learning.discount, ledger.pending,
            recurrent=ledger.state_size > 0,
        )
        self._buffer = self.new_buffer()

    @property
    def ticks(self) -> int:
        """Ticks that the ring holds."""
        return self._ring.newest - self._ring.oldest + 1

    def __len__(self) -> int:
        """Transitions that can be sampled."""
        return len(self.index)

    def new_buffer(self, memory: Memory = np.empty) -> BatchBuffer:
        """Memory of its own for a batch, whose frames lie in what `memory` gives."""
        return BatchBuffer(self._ring, self.index, self._ledger.pending, memory)

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
            # First: if there is no memory for them, these rows are a gap, and do not come twice.
            self._next_tick, taken = stop, len(rows)
            self.index.feed(rows)
        self._sampler.follow(self.index, self._forget())
        return taken

    def sample(
        self, count: int, rng: np.random.Generator, beta: float = 1.0,
        out: BatchBuffer | None = None,
    ) -> Batch | None:
        """Draw a batch.

        Args:
            count: B.
            rng: source of randomness.
            beta: exponent of the importance weights.
            out: where the batch is put; it is valid until that is used again. If none is given,
                until the next call.

        Returns:
            The batch; none if there are no transitions yet, or if the ring lost the samples again
            and again.
        """
        out = self._buffer if out is None else out
        drawn = self._draw(count, rng)
        if drawn is None:
            return None
        self.drawn_priorities = drawn.priorities
        shift = out.choose(drawn.serials)
        # One run of stack + shift frames is both: its first and its last `stack` frames. Clamping
        # agrees with that, because state and successor are of one episode: frame j of the run is
        # frame number max(start, state - stack + 1 + j), which is what the successor's stack wants
        # as its frame j - shift. Of a terminal transition, only the first part has a meaning.
        lost = out.copy(shift if shift <= self._ring.stack else 0)
        if len(lost) and not self._replace(drawn, lost, rng, out):
            return None
        return out.batch(self._sampler.weights(drawn, beta))

    def choose(self, count: int, rng: np.random.Generator, beta: float = 1.0) -> Chosen | None:
        """Draw transitions, and leave their frames where they are.

        Args:
            count: B.
            rng: source of randomness.
            beta: exponent of the importance weights.

        Returns:
            Copies; none if there are no transitions yet. The ring may lose their frames.
        """
        drawn = self._draw(count, rng)
        if drawn is None:
            return None
        weights = self._sampler.weights(drawn, beta)
        return Chosen(self.index.get(drawn.serials), weights, drawn.priorities)

    def update_priorities(self, batch: Batch, errors: Tensor) -> None:
        """Say how far off the transitions of a batch were.

        Another thread than that which samples may call this. It waits at most a moment for other
        learners, and then goes without.

        Args:
            batch: as it was sampled.
            errors: (B,); those that are not finite are ignored.
        """
        self.update_errors(batch.frames, errors.numpy(force=True))

    def update_errors(self, frames: Ints, errors: Floats) -> None:
        """As `update_priorities`, for the transitions that begin with these frames (B,)."""
        self._sampler.update(frames, errors)

    def _replace(
        self, drawn: Drawn, lost: Ints, rng: np.random.Generator, out: BatchBuffer
    ) -> bool:
        """Draw what is lost (positions in `drawn`) anew, until all is whole; whether it is."""
        observations, following = out.apart()
        pending = np.arange(len(drawn.serials))
        for _ in range(REDRAWS):
            self._sampler.discard(self.index.get(drawn.serials[lost]).frame)
            other = self._draw(len(lost), rng)
            if other is None:
                return False
            drawn.put(lost, other)
            chosen = self.index.get(drawn.serials[pending])
            states = self._copy(chosen.frame, observations, pending)
            successors = self._copy(chosen.next_frame, following, pending) | chosen.terminal
            pending = lost = pending[~(states & successors)]
            if not len(pending):
                out.choose(drawn.serials)
                return True
        return False

    def _forget(self) -> int:
        """Forget what the ring has lost; the oldest frame whose stack it still holds."""
        oldest = self._ring.oldest
        # Clamped stacks are shorter than that: the few frames' difference is not worth a look-up.
        oldest += self._ring.stack - 1 if oldest else 0
        self.index.forget(oldest)
        return oldest

    def _draw(self, count: int, rng: np.random.Generator) -> Drawn | None:
        """Choose transitions."""
        # To read a frame whose memory has been returned would take that memory back.
        self._forget()
        return self._sampler.draw(count, self.index, rng) if len(self.index) else None

    def _copy(self, numbers: Ints, out: Frames, positions: Ints) -> Flags:
        """Copy stacks (n,) to positions (n,) of `out`; which are whole."""
        part = np.empty((len(positions), *out.shape[1:]), out.dtype)
        gather = prepare_gather(self._ring, numbers, part)
        gather.run()
        out[positions] = part
        return np.asarray(gather.right.all(axis=1))
