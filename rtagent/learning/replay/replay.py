"""Replay without a copy: transitions are indices into the frame ring that all processes share.

Why it is correct. The environment goes on writing while a batch is copied. It overwrites only the
oldest frames, and marks a slot before it changes the pixels; and the supervisor returns the memory
of old frames only after it has raised the ring's floor above them. So a batch is whole if, after
the copy, every slot still has the frame number that was wanted, and none of these is older than the
oldest frame of the ring. Transitions that fail this check are drawn again.

Choosing (`sampling.py`) is separate from gathering (`memory/gather.py`), and both are separate from
the index of transitions (`transitions.py`). One thread at a time may use a `Replay`; another thread
may call only `update_priorities`, `ticks` and `len` meanwhile.
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
STATE_FIELDS = ["tick", "state_lag", "worker", "state_worker"]
"""Fields of a row that say where to find the state that a decision began with."""
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
    """Batches of transitions out of the shared rings.

    Args:
        frames: the shared frames.
        ledger: the shared rows.
        learning: discount, n-step, meaning of a transition, exponent of the priorities.
        priorities: shared by all learners. If None, every transition has the same probability.

    Attributes:
        drawn_priorities: (B,) the priorities with which `sample` drew its last batch. If None, all
            had the same probability.
        index: the transitions.
    """

    def __init__(
        self, frames: FrameRing, ledger: Ledger, learning: LearningConfig,
        priorities: Priorities | None = None,
    ) -> None:
        self._ring, self._ledger, self._learning = frames, ledger, learning
        self._sampler, self._priorities = Sampler(), priorities
        if priorities is not None:
            self._sampler = Prioritized(priorities, learning.priority_exponent)
        self._next_tick = 0
        self.drawn_priorities: Doubles | None = None
        self.index = DecisionIndex(
            frames.capacity, ledger.dtype["action"], learning.gamma, learning.n_step,
            learning.transitions, learning.discount, ledger.pending,
            ledger.dtype[STATE_FIELDS] if ledger.state_size else None,
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
        """A buffer for one batch; `memory` makes the arrays of its frames."""
        return BatchBuffer(self._ring, self.index, self._ledger.pending, memory)

    def refresh(self) -> int:
        """Take in new rows of the ledger, and forget what the ring has lost.

        Returns:
            The number of ticks whose rows were taken in, torn rows included; at most
            `ROWS_PER_REFRESH`, the rest is for the next call.
        """
        start = max(self._next_tick, self._ledger.oldest)
        # A row comes before its frame: a transition is not complete without both.
        newest = min(self._ledger.newest, self._ring.newest)
        stop = min(newest + 1, start + ROWS_PER_REFRESH)
        if start < stop:
            rows = self._ledger.read(start, stop)
            # Before `feed`: if it gets no memory, these rows are a gap, and are not fed twice.
            self._next_tick = stop
            self.index.feed(rows)
        self._sampler.follow(self.index, self._forget())
        return max(0, stop - start)

    def catch_up(self) -> None:
        """Take in all new rows of the ledger."""
        while self.refresh() >= ROWS_PER_REFRESH:
            pass

    def sample(
        self, count: int, rng: np.random.Generator, beta: float = 1.0,
        out: BatchBuffer | None = None,
    ) -> Batch | None:
        """Draw a batch.

        Args:
            count: B.
            rng: source of randomness.
            beta: exponent of the importance weights.
            out: the buffer of the batch, which is valid until the buffer is used again. If None,
                the batch is valid until the next call.

        Returns:
            The batch; None if there are no transitions yet, or if the ring kept losing the drawn
            transitions.
        """
        out = self._buffer if out is None else out
        drawn = self._draw(count, rng)
        if drawn is None:
            return None
        self.drawn_priorities = drawn.priorities
        shift = out.choose(drawn.serials)
        # One run of stack + shift frames holds both: the state is its first `stack` frames, the
        # successor its last. Stacks are clamped at the episode's start, and as state and successor
        # are of one episode, this agrees: frame j of the run has the number
        # max(start, state - stack + 1 + j), which is frame j - shift of the successor's stack. Of a
        # terminal transition, only the state has a meaning.
        lost = out.copy(shift)
        if len(lost) and not self._replace(drawn, lost, rng, out):
            return None
        return out.batch(self._sampler.weights(drawn, beta))

    def choose(self, count: int, rng: np.random.Generator, beta: float = 1.0) -> Chosen | None:
        """Draw transitions without copying their frames.

        Args:
            count: B.
            rng: source of randomness.
            beta: exponent of the importance weights.

        Returns:
            Copies of the transitions; None if there are none yet. The ring may lose their frames.
        """
        drawn = self._draw(count, rng)
        if drawn is None:
            return None
        weights = self._sampler.weights(drawn, beta)
        return Chosen(self.index.get(drawn.serials), weights, drawn.priorities)

    def largest_weight(self, priorities: Doubles | None, beta: float) -> float:
        """max_j (N P(j))^-beta of transitions that were just drawn; it divides their weights.

        Args:
            priorities: with which they were drawn. If None, all had the same probability.
            beta: exponent of the importance weights.
        """
        if priorities is None or self._priorities is None:
            return 1.0
        return float((priorities.min() * len(self) / self._priorities.total) ** -beta)

    def update_priorities(self, batch: Batch, errors: Tensor) -> None:
        """Make the errors of a batch the new priorities of its transitions.

        May be called by another thread than the one that samples. If the lock of the priorities is
        not free within a moment, the errors are dropped.

        Args:
            batch: as it was sampled.
            errors: (B,); errors that are not finite are ignored.
        """
        self.update_errors(batch.frames, errors.numpy(force=True))

    def update_errors(self, frames: Ints, errors: Floats) -> None:
        """As `update_priorities`, for the transitions that begin with these frames (B,)."""
        self._sampler.update(frames, errors)

    def _replace(
        self, drawn: Drawn, lost: Ints, rng: np.random.Generator, out: BatchBuffer
    ) -> bool:
        """Replace the lost transitions (positions in `drawn`); returns whether all are whole."""
        observations, next_observations = out.apart()
        pending = np.arange(len(drawn.serials))
        for _ in range(REDRAWS):
            self._sampler.discard(self.index.get(drawn.serials[lost]).frame)
            other = self._draw(len(lost), rng)
            if other is None:
                return False
            drawn.put(lost, other)
            chosen = self.index.get(drawn.serials[pending])
            states = self._copy(chosen.frame, observations, pending)
            successors = self._copy(chosen.next_frame, next_observations, pending) | chosen.terminal
            pending = lost = pending[~(states & successors)]
            if not len(pending):
                out.choose(drawn.serials)
                return True
        return False

    def _forget(self) -> int:
        """Forget transitions whose frames are lost; returns the oldest frame with a whole stack."""
        oldest = self._ring.oldest
        # Stacks at an episode's start need fewer frames, but that is not worth a look-up.
        oldest += self._ring.stack - 1 if oldest else 0
        self.index.forget(oldest)
        return oldest

    def _draw(self, count: int, rng: np.random.Generator) -> Drawn | None:
        # Reading a frame whose memory has been returned would allocate that memory again.
        self._forget()
        return self._sampler.draw(count, self.index, rng) if len(self.index) else None

    def _copy(self, numbers: Ints, out: Frames, positions: Ints) -> Flags:
        """Copy stacks (n,) to positions (n,) of `out`; returns which are whole."""
        out[positions], whole = self._stacks(numbers)
        return whole

    def _stacks(self, numbers: Ints) -> tuple[Frames, Flags]:
        """The stacks that end with these frames (n,), and which of them are whole."""
        ring = self._ring
        out = np.empty((len(numbers), ring.stack, *ring.frames.shape[1:]), ring.frames.dtype)
        gather = prepare_gather(ring, numbers, out)
        gather.run()
        return out, np.asarray(gather.right.all(axis=1))
