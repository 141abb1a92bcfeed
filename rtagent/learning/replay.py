"""Replay without a copy: transitions are indices into the frame ring that everybody shares.

Why it is correct. The environment goes on writing while a batch is copied. It only ever overwrites
the oldest frames, and marks a slot before it touches the pixels; so a batch is whole if every slot
still carries the number that was wanted after the copy. Samples that fail are drawn again.

Drawing (`Uniform`) is separate from gathering (`FrameGather`), and both from the index of
transitions, so each can be replaced by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rtagent.config import LearningConfig
from rtagent.learning.transitions import DecisionIndex, Ints
from rtagent.memory.frames import FrameRing
from rtagent.memory.ledger import Ledger

ROWS_PER_REFRESH = 65_536
REDRAWS = 8


@dataclass(frozen=True)
class Batch:
    """Transitions ready for an update. The tensors are overwritten by the next sample.

    Attributes:
        observations: (B, stack, *frame_shape) uint8 or float32.
        actions: (B,) int64.
        rewards: (B,) float32.
        discounts: (B,) float32, gamma**n.
        next_observations: as `observations`.
        terminals: (B,) bool.
        serials: (B,) which transitions these are.
    """

    observations: Tensor
    actions: Tensor
    rewards: Tensor
    discounts: Tensor
    next_observations: Tensor
    terminals: Tensor
    serials: Ints = field(default_factory=lambda: np.empty(0, np.int64))


class Sampler(Protocol):
    """Chooses transitions."""

    def draw(self, count: int, span: tuple[int, int], rng: np.random.Generator) -> Ints:
        """Serial numbers (count,) with span[0] <= serial < span[1]."""
        ...


class Uniform:
    """Every transition with the same probability."""

    def draw(self, count: int, span: tuple[int, int], rng: np.random.Generator) -> Ints:
        return rng.integers(span[0], span[1], count)


class FrameGather:
    """Copies stacks of frames out of the ring.

    Args:
        ring: the shared frames.
    """

    def __init__(self, ring: FrameRing) -> None:
        self._ring = ring
        self._frames = torch.from_numpy(ring.frames).flatten(1)
        self._offsets = np.arange(1 - ring.stack, 1)

    def buffer(self, count: int) -> Tensor:
        """An empty tensor (count, stack, *frame_shape)."""
        shape = (count, self._ring.stack, *self._ring.frames.shape[1:])
        return torch.empty(shape, dtype=self._frames.dtype)

    def gather(self, numbers: Ints, out: Tensor) -> npt.NDArray[np.bool_]:
        """Copy the stacks that end with the given frames, clamped at the start of the episode.

        Args:
            numbers: (B,) frame numbers.
            out: (B, stack, *frame_shape), filled.

        Returns:
            (B,) which stacks are whole.
        """
        ring = self._ring
        newest_slots = numbers % ring.capacity
        starts = ring.episode_starts[newest_slots]
        wanted = np.maximum(numbers[:, None] + self._offsets, starts[:, None])
        slots = wanted % ring.capacity
        flat_out = out.view(-1, self._frames.shape[1])
        torch.index_select(self._frames, 0, torch.from_numpy(slots.ravel()), out=flat_out)
        whole: npt.NDArray[np.bool_] = (ring.numbers[slots] == wanted).all(axis=1)
        # A lost frame's slot has the episode start of its successor, which lies after the frame.
        whole &= (wanted[:, -1] == numbers) & (wanted[:, 0] >= ring.oldest)
        return whole


class Replay:
    """Batches of what really happened.

    Args:
        frames: the shared frames.
        ledger: the shared rows.
        learning: discount, n-step, meaning of a transition.
        sampler: chooses transitions; uniform if none is given.
    """

    def __init__(
        self,
        frames: FrameRing,
        ledger: Ledger,
        learning: LearningConfig,
        sampler: Sampler | None = None,
    ) -> None:
        self._ring = frames
        self._ledger = ledger
        self._sampler = sampler or Uniform()
        self._gather = FrameGather(frames)
        self._next_tick = 0
        self._buffers: tuple[Tensor, Tensor] | None = None
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

    def refresh(self) -> int:
        """Take in new rows of the ledger, and forget what the ring has lost.

        Returns:
            Rows taken in; at most `ROWS_PER_REFRESH`, the rest is for the next call.
        """
        start = max(self._next_tick, self._ledger.oldest)
        stop = min(self._ledger.newest + 1, start + ROWS_PER_REFRESH)
        rows = self._ledger.read(start, stop)
        self.index.feed(rows)
        self._next_tick = max(self._next_tick, stop)
        # Clamped stacks are shorter than that: the few frames' difference is not worth a look-up.
        self.index.forget(self._ring.oldest + (self._ring.stack - 1 if self._ring.oldest else 0))
        return len(rows)

    def sample(self, count: int, rng: np.random.Generator) -> Batch | None:
        """Draw a batch.

        Args:
            count: B.
            rng: source of randomness.

        Returns:
            The batch, valid until the next call; none if there are no transitions yet, or if the
            ring lost the samples again and again.
        """
        if not len(self.index):
            return None
        observations, next_observations = self._out(count)
        serials = self._sampler.draw(count, self.index.span, rng)
        pending = np.arange(count)
        for attempt in range(REDRAWS):
            if attempt:
                self.index.forget(self._ring.oldest)
                if not len(self.index):
                    return None
                serials[pending] = self._sampler.draw(len(pending), self.index.span, rng)
            chosen = self.index.get(serials[pending])
            whole = self._copy(chosen.frame, observations, pending)
            whole &= self._copy(chosen.next_frame, next_observations, pending) | chosen.terminal
            pending = pending[~whole]
            if not len(pending):
                return self._batch(serials, observations, next_observations)
        return None

    def _copy(
        self, numbers: Ints, out: Tensor, positions: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_]:
        if len(positions) == len(out):
            return self._gather.gather(numbers, out)
        part = self._gather.buffer(len(positions))
        whole = self._gather.gather(numbers, part)
        out[torch.from_numpy(positions)] = part
        return whole

    def _out(self, count: int) -> tuple[Tensor, Tensor]:
        if self._buffers is None or len(self._buffers[0]) != count:
            self._buffers = (self._gather.buffer(count), self._gather.buffer(count))
        return self._buffers

    def _batch(self, serials: Ints, observations: Tensor, next_observations: Tensor) -> Batch:
        chosen = self.index.get(serials)
        return Batch(
            observations=observations,
            actions=torch.from_numpy(chosen.action.astype(np.int64)),
            rewards=torch.from_numpy(chosen.reward),
            discounts=torch.from_numpy(chosen.discount),
            next_observations=next_observations,
            terminals=torch.from_numpy(chosen.terminal),
            serials=serials,
        )
