"""Transitions ready for an update, and the memory that they are put into."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rtagent.learning.replay.look_up import Ints, LookUp, Transitions
from rtagent.learning.replay.powers import Doubles
from rtagent.learning.replay.transitions import DecisionIndex
from rtagent.memory.blueprint import Blueprint
from rtagent.memory.frames import FrameRing, Frames
from rtagent.memory.gather import Gather, prepare_gather
from rtagent.memory.pending import PendingActions
from rtagent.policy.inputs import Inputs

_NONE: Ints = np.empty(0, np.int64)
Memory = Callable[[tuple[int, ...], npt.DTypeLike], Frames]
_ACTION_DTYPES = {"i": np.int64, "f": np.float32}


@dataclass(frozen=True)
class Batch:
    """Transitions ready for an update.

    Its memory is to be read only: states and successors may be views of the same frames. Whoever
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
        log_probabilities: (B,) float32 of the actions by the policy before its updates; this and
            the next two are for algorithms that learn from what the policy has just done.
        advantages: (B,) float32.
        targets: (B,) float32 of the values.
        pending: (B, width) float32, what was pending; None in a run that does not know it.
        next_pending: of the successors.
        sent: whether the tensors are where the learner computes (`learning/device.py`).
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
    log_probabilities: Tensor = field(default_factory=lambda: torch.zeros(1))
    advantages: Tensor = field(default_factory=lambda: torch.zeros(1))
    targets: Tensor = field(default_factory=lambda: torch.zeros(1))
    pending: Tensor | None = None
    next_pending: Tensor | None = None
    sent: bool = False

    @property
    def inputs(self) -> Inputs:
        """What networks are given of the states."""
        if self.pending is None:
            return (self.observations,)
        return self.observations, self.pending

    @property
    def next_inputs(self) -> Inputs:
        """What networks are given of the successors."""
        if self.next_pending is None:
            return (self.next_observations,)
        return self.next_observations, self.next_pending


def empty_batch(blueprint: Blueprint, count: int) -> Batch:
    """Zeros in the shapes of a run: to run every shape before it counts, and to measure it."""
    dtype = torch.uint8 if blueprint.frame_dtype == "uint8" else torch.float32
    zeros = torch.zeros((count, blueprint.frame_stack, *blueprint.frame_shape), dtype=dtype)
    numbers = torch.zeros(count)
    actions = torch.zeros((count, *blueprint.action_shape))
    pending = PendingActions.of(blueprint)
    beside = None if pending is None else torch.zeros((count, pending.width))
    return Batch(
        observations=zeros, actions=actions if blueprint.action_shape else actions.long(),
        rewards=numbers, discounts=numbers, next_observations=zeros, terminals=numbers.bool(),
        weights=torch.ones(count), demonstrated=numbers.bool(),
        pending=beside, next_pending=beside,
    )


class BatchBuffer:
    """Memory for one batch, used again and again: making tensors takes longer than filling them.

    First the transitions are put in, then their frames are copied, then the batch is taken out.

    Args:
        ring: the shared frames.
        index: whose transitions they are.
        pending: what was pending at them. If None, they do not say.
        memory: makes arrays, of a shape and a type, for frames.
    """

    def __init__(
        self, ring: FrameRing, index: DecisionIndex, pending: PendingActions | None = None,
        memory: Memory = np.empty,
    ) -> None:
        self._ring, self._pending = ring, pending
        self._index, self._new_memory = index, memory
        self._memory = memory((0, *ring.frames.shape[1:]), ring.frames.dtype)
        self._chosen = index.room(0)
        self._serials = self._chosen.frame
        self._look_up: LookUp | None = None
        self._shift = -1
        self._layout: _Layout | None = None

    def choose(self, serials: Ints) -> int:
        """Put transitions in; what was in the buffer before is not valid any more.

        Args:
            serials: (B,) held by the index.

        Returns:
            Frames from state to successor if that is the same for all, else 0.
        """
        if self._look_up is None or len(self._serials) != len(serials):
            self._layout = None
            self._serials = np.empty(len(serials), np.int64)
            self._chosen = self._index.room(len(serials))
            self._look_up = self._index.prepare(self._serials, self._chosen)
        self._serials[:] = serials
        return self._look_up.run()

    def copy(self, shift: int) -> Ints:
        """Copy the frames of the transitions.

        Args:
            shift: of all of them, at most a stack: state and successor overlap, and are copied
                together. 0: each is copied by itself.

        Returns:
            Positions of the transitions whose frames were not all there.
        """
        return self._laid_out(shift).copy()

    def apart(self) -> tuple[Frames, Frames]:
        """Memory of the states and of the successors, each (B, stack, *frame_shape).

        What they hold is undefined, unless `copy` was last called with 0.
        """
        layout = self._laid_out(0)
        return layout.observations, layout.next_observations

    def batch(self, weights: Doubles | None) -> Batch:
        """The batch, the same object each time, once transitions and frames are there.

        Args:
            weights: (B,). If None, all 1, in every batch of this buffer.
        """
        return self._laid_out(self._shift).finish(weights)

    def _laid_out(self, shift: int) -> _Layout:
        if self._layout is None or self._shift != shift:
            # Before the next ones are made, which may need this one's memory.
            self._layout = None
            self._shift, count, stack = shift, len(self._chosen), self._ring.stack
            if shift:
                runs = self._reuse(count, stack + shift)
                states = prepare_gather(self._ring, self._chosen.frame, runs)
                whole = torch.from_numpy(runs)
                views = whole[:, :stack], whole[:, shift:]
                self._layout = _Layout(self._chosen, *views, states, None, self._pending)
            else:
                runs = self._reuse(2 * count, stack)
                states = prepare_gather(self._ring, self._chosen.frame, runs[:count])
                successors = prepare_gather(self._ring, self._chosen.next_frame, runs[count:])
                whole = torch.from_numpy(runs)
                views = whole[:count], whole[count:]
                self._layout = _Layout(self._chosen, *views, states, successors, self._pending)
        return self._layout

    def _reuse(self, runs: int, length: int) -> Frames:
        """Memory for runs of frames."""
        needed = runs * length
        # Large ones are given back: batches may have shrunk for lack of memory.
        if not needed <= len(self._memory) <= 2 * needed:
            shape = needed, *self._memory.shape[1:]
            self._memory = self._new_memory(shape, self._memory.dtype)
        return self._memory[:needed].reshape(runs, length, *self._memory.shape[1:])


class _Layout:
    """A batch, and the copies that fill its frames; without one of successors, states have them."""

    def __init__(
        self, chosen: Transitions, observations: Tensor, next_observations: Tensor,
        states: Gather, successors: Gather | None, pending: PendingActions | None,
    ) -> None:
        self.observations: Frames = observations.numpy()
        self.next_observations: Frames = next_observations.numpy()
        self._chosen = chosen
        self._states, self._successors = states, successors
        action = chosen.action
        self._actions = np.empty(action.shape, _ACTION_DTYPES[action.dtype.kind])
        self._weights = np.ones(len(chosen), np.float32)
        self._pending = pending
        shape = len(chosen), 0 if pending is None else pending.width
        self._before, self._after = (np.empty(shape, np.float32) for _ in range(2))
        beside = [
            None if pending is None else torch.from_numpy(each)
            for each in (self._before, self._after)
        ]
        self._batch = Batch(
            observations=observations, actions=torch.from_numpy(self._actions),
            rewards=torch.from_numpy(chosen.reward), discounts=torch.from_numpy(chosen.discount),
            next_observations=next_observations,
            terminals=torch.from_numpy(chosen.terminal), weights=torch.from_numpy(self._weights),
            frames=chosen.frame, demonstrated=torch.from_numpy(chosen.demonstrated),
            pending=beside[0], next_pending=beside[1],
        )

    def copy(self) -> Ints:
        """Copy all frames; positions of the transitions that lack some."""
        whole = self._states.run()
        if self._successors is not None:
            whole = self._successors.run() and whole
        return _NONE if whole else self._lost()

    def finish(self, weights: Doubles | None) -> Batch:
        """What is no view of the transitions is converted."""
        self._actions[:] = self._chosen.action
        if self._pending is not None:
            self._before[:] = self._pending.encode(self._chosen.rows["pending"])
            self._after[:] = self._pending.encode(self._chosen.rows["next_pending"])
        if weights is not None:
            self._weights[:] = weights
        return self._batch

    def _lost(self) -> Ints:
        stack = self.observations.shape[1]
        following = (
            self._states.right[:, stack:] if self._successors is None else self._successors.right
        )
        # A terminal successor has no value: what is in its place does not matter.
        successors = following.all(axis=1) | self._chosen.terminal
        return np.flatnonzero(~(self._states.right[:, :stack].all(axis=1) & successors))
