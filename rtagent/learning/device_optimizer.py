"""The learned state on a GPU, so that a step of Adam does not have to wait for the host's memory.

A learner on a GPU has weights, Adam's moments and target network there, and makes its steps there.
The state in the host's memory stays the one that all learners share: before a step everything that
others have written is read from there, and after it everything is stored there. To copy it all
takes longer than the step. So a learner that is alone keeps its steps to itself, and stores them
every `STORE_EVERY` updates, before a publication and before a checkpoint. If it is killed, the
steps that were not stored are lost; the one that takes its place goes on from the stored ones.

Why it is correct. Everything here has the number of the shared state that it was read from, or
stored as. Steps are made under the apply lock, and only on the state with the number that is
current then. So two learners never build on the same state: steps that were kept while another
learner has stored its own, in the moment in which it joined, are given up and counted. `store`
fills the other copy of the double buffer and waits until the GPU has done so before it commits; a
reader finds out by number and checksum if what it has copied to the GPU was written over meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rtagent.learning.adam import adam_, tensors
from rtagent.learning.device import Device
from rtagent.learning.flat import FlatNetwork
from rtagent.learning.optimizer import Optimizer
from rtagent.memory.array_buffer import Copying, Floats
from rtagent.memory.learner_state import LearnerState, Progress

STORE_EVERY = 10
"""Updates that a learner that is alone makes at most before it stores them."""


class DeviceOptimizer(Optimizer):
    """Works on a GPU.

    Args:
        state, network, target, parts: as of an `Optimizer`.
        device: where the networks are.
    """

    def __init__(
        self, state: LearnerState, network: FlatNetwork, target: FlatNetwork,
        parts: Sequence[slice], device: Device,
    ) -> None:
        super().__init__(state, network, target, parts)
        self._device = device
        self._weights, self._mean, self._square, self._following = (
            torch.zeros(network.size, device=device.device) for _ in range(4)
        )
        self._steps = torch.zeros((), device=device.device)
        self._number = self._moments_number = self._target_number = 0
        self._progress = Progress()
        self._stored = self._target_seen = 0
        self._unsaved = self._target_unsaved = False
        self._target_loaded = False

    def load(self) -> Progress | None:
        state = self._state
        if not self._is_newest:
            # If a newer one is read than this number says, it is read once more.
            number = state.number
            progress = state.read_weights(self._to(self._weights))
            if progress is None:
                return None
            self._took(number, progress)
        if state.target_number != self._target_number:
            number = state.target_number
            seen = state.read_target(self._to(self._following))
            if seen is None:
                return None
            self._took_target(number, seen.updates)
        if not self._target_loaded:
            self._target.load(self._following)
            self._target_loaded = True
        return self._progress

    def fill(self) -> None:
        self._network.load(self._weights)

    @property
    def progress(self) -> Progress:
        return self._progress if self._is_newest else self._state.progress

    @property
    def target_updates(self) -> int:
        newest = self._state.target_number == self._target_number
        return self._target_seen if newest else self._state.target_updates

    def step(
        self, steps: Sequence[int | None], gradient: Tensor, learning_rate: float, after: Progress
    ) -> None:
        self._follow()
        for part, before in zip(self._parts, steps, strict=True):
            if before is not None:
                arrays = [each[part] for each in self._arrays]
                adam_(arrays, gradient[part], self._steps.fill_(before + 1), learning_rate)
        self._network.unlearned_into(self._weights)
        self._progress, self._unsaved = after, True

    def note(self, progress: Progress) -> None:
        self._follow()
        self._progress, self._unsaved = progress, True

    def update_target(self, tau: float | None, updates: int) -> None:
        state = self._state
        if state.target_number != self._target_number:
            if tau is not None:
                self._device.copy((self._following, torch.from_numpy(state.target)))
            self._target_number = state.target_number
        self._following.lerp_(self._weights, 1.0 if tau is None else tau)
        # The infinite constant of a mask has become no number.
        self._network.unlearned_into(self._following)
        self._target_seen, self._target_unsaved, self._target_loaded = updates, True, False

    def store(self) -> None:
        state = self._state
        if not self._is_newest:
            return
        if self._unsaved:
            index = state.begin()
            self._device.copy(*zip(tensors(state.copies[index]), self._arrays, strict=True))
            state.commit(self._progress, checksum(self._weights))
            self._number = self._moments_number = state.number
            self._stored, self._unsaved = self._progress.updates, False
        if self._target_unsaved and state.target_number == self._target_number:
            out = torch.from_numpy(state.begin_target())
            self._device.copy((out, self._following))
            state.commit_target(self._target_seen, checksum(self._following))
            self._target_number, self._target_unsaved = state.target_number, False

    def write(self, part: slice, out: Floats) -> int:
        self._follow()
        self._device.copy((torch.from_numpy(out), self._weights[part]))
        return checksum(self._weights[part])

    @property
    def _is_newest(self) -> bool:
        return self._number == self._state.number > 0

    @property
    def _arrays(self) -> tuple[Tensor, Tensor, Tensor]:
        return self._weights, self._mean, self._square

    def _follow(self) -> None:
        """Take over what others have stored since the last step. Under the apply lock."""
        state = self._state
        number = state.number
        if self._moments_number != number:
            self._device.copy(*zip(self._arrays, tensors(state.current), strict=True))
            self._moments_number = number
        if self._number != number:
            self._took(number, state.progress)

    def _took(self, number: int, progress: Progress) -> None:
        """Note that the weights are those of the shared state with a number."""
        if self._unsaved:
            self.lost += self._progress.updates - self._stored
        if self._target_unsaved:
            # It has followed steps that are lost: the stored one is read again.
            self._target_number, self._target_unsaved = 0, False
        self._number, self._progress, self._stored = number, progress, progress.updates
        self._unsaved = False

    def _took_target(self, number: int, updates: int) -> None:
        self._target_number, self._target_seen = number, updates
        self._target_unsaved = self._target_loaded = False

    def _to(self, out: Tensor) -> Copying:
        """A copy from the host into a tensor."""

        def copying(values: Floats) -> int:
            self._device.copy((out, torch.from_numpy(values)))
            return checksum(out)

        return copying


def checksum(values: Tensor) -> int:
    """The `checksum` of `memory/array_buffer.py`, of (n,) float32 on any device."""
    paired = len(values) // 2 * 2
    total = int(values[:paired].view(torch.int64).sum())
    return (total + sum(int(each) % 2**32 for each in values[paired:].view(torch.int32))) % 2**64
