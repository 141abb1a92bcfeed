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
ACTION_DTYPES = {"i": np.int64, "f": np.float32}
"""Types of actions in a batch, by the kind of those in rows: discrete ones are indices."""


@dataclass(frozen=True)
class Batch:
    """Transitions ready for an update.

    Its memory must not be written: states and successors may be views of the same frames. How long
    a batch is valid depends on what made it.

    Attributes:
        observations: (B, stack, *frame_shape) uint8 or float32.
        actions: (B,) int64, or (B, n) float32 if they are continuous.
        rewards: (B,) float32.
        discounts: (B,) float32, gamma**n.
        next_observations: as `observations`; undefined where terminal.
        terminals: (B,) bool.
        weights: (B,) float32, importance weights; 1 if all transitions are equally probable.
        frames: (B,) the newest frame of each state, which identifies the transition.
        demonstrated: (B,) bool, whether the action is a demonstration; or (1,) for all.
        log_probabilities: (B,) float32 of the actions, by the policy before the updates of its
            rollout; this and the next two are for on-policy algorithms.
        advantages: (B,) float32.
        targets: (B,) float32, of the values.
        pending: (B, width) float32, the pending actions; None in a run that does not record them.
        next_pending: the pending actions of the successors.
        sent: whether the tensors are on the device that computes (`learning/device.py`).
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
    def tensors(self) -> dict[str, Tensor]:
        """All tensors, by name."""
        return {name: each for name, each in vars(self).items() if isinstance(each, Tensor)}

    @property
    def at_once(self) -> int:
        """The fewest states that a network is given at once."""
        return len(self.observations)

    @property
    def inputs(self) -> Inputs:
        """The inputs of networks for the states."""
        if self.pending is None:
            return (self.observations,)
        return self.observations, self.pending

    @property
    def next_inputs(self) -> Inputs:
        """The inputs of networks for the successors."""
        if self.next_pending is None:
            return (self.next_observations,)
        return self.next_observations, self.next_pending


def empty_batch(blueprint: Blueprint, count: int) -> Batch:
    """A batch of zeros in the shapes of a run, to warm up and to measure with."""
    dtype = torch.uint8 if blueprint.frame_dtype == "uint8" else torch.float32
    zeros = torch.zeros((count, blueprint.frame_stack, *blueprint.frame_shape), dtype=dtype)
    numbers = torch.zeros(count)
    actions = torch.zeros((count, *blueprint.action_shape))
    pending = PendingActions.of(blueprint)
    encoded = None if pending is None else torch.zeros((count, pending.width))
    return Batch(
        observations=zeros, actions=actions if blueprint.action_shape else actions.long(),
        rewards=numbers, discounts=numbers, next_observations=zeros, terminals=numbers.bool(),
        weights=torch.ones(count), demonstrated=numbers.bool(),
        pending=encoded, next_pending=encoded,
    )


class BatchBuffer:
    """Memory for one batch, used again and again: making tensors takes longer than filling them.

    To be used in this order: `choose` transitions, `copy` their frames, take out the `batch`.

    Args:
        ring: the shared frames.
        index: the index of the transitions.
        pending: how rows encode pending actions. If None, they have none.
        memory: makes an array for frames, of a shape and a type.
    """

    def __init__(
        self, ring: FrameRing, index: DecisionIndex, pending: PendingActions | None,
        memory: Memory = np.empty,
    ) -> None:
        self._ring, self._index, self._pending, self._new_memory = ring, index, pending, memory
        self._memory = memory((0, *ring.frames.shape[1:]), ring.frames.dtype)
        self._chosen = index.room(0)
        self._serials = self._chosen.frame
        self._look_up: LookUp | None = None
        self._shift = -1
        self._layout: _Layout | None = None

    def choose(self, serials: Ints) -> int:
        """Look up transitions; the batch that was in the buffer before is not valid any more.

        Args:
            serials: (B,) held by the index.

        Returns:
            The number of frames from state to successor, if it is the same for all and at most a
            stack, else 0.
        """
        if self._look_up is None or len(self._serials) != len(serials):
            self._layout = None
            self._serials = np.empty(len(serials), np.int64)
            self._chosen = self._index.room(len(serials))
            self._look_up = self._index.prepare(self._serials, self._chosen)
        self._serials[:] = serials
        shift = self._look_up.run()
        return shift if shift <= self._ring.stack else 0

    def copy(self, shift: int) -> Ints:
        """Copy the frames of the transitions.

        Args:
            shift: frames from state to successor, the same for all and at most a stack: state and
                successor overlap, and are copied together. 0: each is copied separately.

        Returns:
            Positions of the transitions whose frames were not all there.
        """
        return self._laid_out(shift).copy()

    def apart(self) -> tuple[Frames, Frames]:
        """Separate memory of the states and of the successors, each (B, stack, *frame_shape).

        Its content is undefined, unless `copy` was last called with 0.
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
            # Before the next layout is made, which may need the memory of this one.
            self._layout = None
            self._shift, count, stack = shift, len(self._chosen), self._ring.stack
            ring, chosen, successors = self._ring, self._chosen, None
            if shift:
                runs = self._reuse(count, stack + shift)
                states = prepare_gather(ring, chosen.frame, runs)
                whole = torch.from_numpy(runs)
                views = whole[:, :stack], whole[:, shift:]
            else:
                runs = self._reuse(2 * count, stack)
                states = prepare_gather(ring, chosen.frame, runs[:count])
                successors = prepare_gather(ring, chosen.next_frame, runs[count:])
                whole = torch.from_numpy(runs)
                views = whole[:count], whole[count:]
            self._layout = _Layout(chosen, *views, states, successors, self._pending)
        return self._layout

    def _reuse(self, runs: int, length: int) -> Frames:
        """Memory for so many runs of `length` frames."""
        needed = runs * length
        # Much larger memory is given back: batches may have shrunk for lack of memory.
        if not needed <= len(self._memory) <= 2 * needed:
            shape = needed, *self._memory.shape[1:]
            self._memory = self._new_memory(shape, self._memory.dtype)
        return self._memory[:needed].reshape(runs, length, *self._memory.shape[1:])


class _Layout:
    """A batch, and the copies that fill its frames.

    If `successors` is None, the copies of the states include the frames of the successors.
    """

    def __init__(
        self, chosen: Transitions, observations: Tensor, next_observations: Tensor,
        states: Gather, successors: Gather | None, pending: PendingActions | None,
    ) -> None:
        self.observations: Frames = observations.numpy()
        self.next_observations: Frames = next_observations.numpy()
        self._chosen = chosen
        self._states, self._successors = states, successors
        action = chosen.action
        self._actions = np.empty(action.shape, ACTION_DTYPES[action.dtype.kind])
        self._weights = np.ones(len(chosen), np.float32)
        self._pending = pending
        shape = len(chosen), 0 if pending is None else pending.width
        self._of_states, self._of_successors = (np.empty(shape, np.float32) for _ in range(2))
        encoded = [
            None if pending is None else torch.from_numpy(each)
            for each in (self._of_states, self._of_successors)
        ]
        self._batch = Batch(
            observations=observations, actions=torch.from_numpy(self._actions),
            rewards=torch.from_numpy(chosen.reward), discounts=torch.from_numpy(chosen.discount),
            next_observations=next_observations,
            terminals=torch.from_numpy(chosen.terminal), weights=torch.from_numpy(self._weights),
            frames=chosen.frame, demonstrated=torch.from_numpy(chosen.demonstrated),
            pending=encoded[0], next_pending=encoded[1],
        )

    def copy(self) -> Ints:
        """Copy all frames; returns the positions of the transitions of which some are lost."""
        whole = self._states.run()
        if self._successors is not None:
            whole = self._successors.run() and whole
        return _NONE if whole else self._lost()

    def finish(self, weights: Doubles | None) -> Batch:
        """Fill in the columns that are not views of the transitions; returns the batch."""
        self._actions[:] = self._chosen.action
        if self._pending is not None:
            self._of_states[:] = self._pending.encode(self._chosen.rows["pending"])
            self._of_successors[:] = self._pending.encode(self._chosen.rows["next_pending"])
        if weights is not None:
            self._weights[:] = weights
        return self._batch

    def _lost(self) -> Ints:
        stack = self.observations.shape[1]
        following = (
            self._states.right[:, stack:] if self._successors is None else self._successors.right
        )
        # A terminal successor has no value, so its frames do not matter.
        successors = following.all(axis=1) | self._chosen.terminal
        return np.flatnonzero(~(self._states.right[:, :stack].all(axis=1) & successors))
