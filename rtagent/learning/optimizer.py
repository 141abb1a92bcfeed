"""Adam, and the target network's following, on the state that all learners share.

`HostOptimizer` works on the shared memory itself: every step is written from the current copy of
the state to the other one. `DeviceOptimizer` (`device_optimizer.py`) does the same on a GPU.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from rtagent.learning.adam import FlatAdam
from rtagent.learning.flat import FlatNetwork
from rtagent.memory.array_buffer import Floats, into
from rtagent.memory.learner_state import LearnerState, Progress


class Optimizer(ABC):
    """One learner's way to the learned state.

    Args:
        state: the state that all learners share.
        network: the network that learns.
        target: the target network.
        parts: slices of the flat state that are updated separately.

    Attributes:
        lost: updates that were given up because another learner had stored its own.
    """

    lost = 0

    def __init__(
        self, state: LearnerState, network: FlatNetwork, target: FlatNetwork,
        parts: Sequence[slice],
    ) -> None:
        self._state, self._network, self._target, self._parts = state, network, target, parts

    @abstractmethod
    def load(self) -> Progress | None:
        """Read the newest weights, and load the newest target network. At any time.

        Returns:
            The progress of the weights; None if others wrote so fast that no whole copy was read.
        """

    @abstractmethod
    def fill(self) -> None:
        """Load the weights that were read into the network, unless `load` has done so."""

    # ---- under the apply lock

    @property
    @abstractmethod
    def progress(self) -> Progress:
        """How far learning has come in the newest state."""

    @property
    @abstractmethod
    def target_updates(self) -> int:
        """Updates that the target network has seen."""

    @abstractmethod
    def step(
        self, steps: Sequence[int | None], gradient: Tensor, learning_rate: float, after: Progress
    ) -> None:
        """Make one step of Adam.

        Args:
            steps: for each part, the number of steps behind its moments. If None, the part stays as
                it is.
            gradient: (parameters,) float32.
            learning_rate: alpha.
            after: the progress of the new state.
        """

    @abstractmethod
    def note(self, progress: Progress) -> None:
        """Replace the progress; weights and moments stay."""

    @abstractmethod
    def update_target(self, tau: float | None, updates: int) -> None:
        """Move the target network towards the weights by a share tau. If None, replace it.

        State that does not learn is replaced in any case. Called after `step`.

        Args:
            tau: in (0, 1].
            updates: that the target network has seen then.
        """

    @abstractmethod
    def store(self) -> None:
        """Write everything to the state that all learners share, unless it is there."""

    @abstractmethod
    def write(self, part: slice, out: Floats) -> int:
        """Copy the newest weights of a part into an array; returns their `checksum`."""


class HostOptimizer(Optimizer):
    """Works on the shared memory: whatever is done is stored."""

    def __init__(
        self, state: LearnerState, network: FlatNetwork, target: FlatNetwork,
        parts: Sequence[slice],
    ) -> None:
        super().__init__(state, network, target, parts)
        self._adams = [[FlatAdam(each, part) for part in parts] for each in state.copies]
        self._copy = np.empty(network.size, np.float32)
        self._target_number = 0

    def load(self) -> Progress | None:
        state, copying = self._state, into(self._copy)
        progress = state.read_weights(copying)
        if progress is None:
            return None
        self._network.load(torch.from_numpy(self._copy))
        # If a newer one is read than this number says, it is read once more.
        number = state.target_number
        if number != self._target_number:
            if state.read_target(copying) is None:
                return None
            self._target.load(torch.from_numpy(self._copy))
            self._target_number = number
        return progress

    def fill(self) -> None:
        pass

    @property
    def progress(self) -> Progress:
        return self._state.progress

    @property
    def target_updates(self) -> int:
        return self._state.target_updates

    def step(
        self, steps: Sequence[int | None], gradient: Tensor, learning_rate: float, after: Progress
    ) -> None:
        state, index = self._state, self._state.begin()
        copies = zip(self._parts, self._adams[index], self._adams[1 - index], steps, strict=True)
        for part, adam, old, before in copies:
            if before is None:
                adam.copy(old)
            else:
                adam.step(old, gradient[part], before, learning_rate)
        self._network.unlearned_into(torch.from_numpy(state.copies[index].weights))
        state.commit(after)

    def note(self, progress: Progress) -> None:
        state, old = self._state, self._state.current
        state.copies[state.begin()].copy_from(old)
        state.commit(progress)

    def update_target(self, tau: float | None, updates: int) -> None:
        state, out = self._state, self._state.begin_target()
        if tau is None:
            np.copyto(out, state.current.weights)
        else:
            soft_update(state.target, state.current.weights, tau, out)
            # The infinite constant of a mask would become no number.
            self._network.unlearned_into(torch.from_numpy(out))
        state.commit_target(updates)

    def store(self) -> None:
        pass

    def write(self, part: slice, out: Floats) -> int:
        return into(out)(self._state.current.weights[part])


def soft_update(target: Floats, online: Floats, tau: float, out: Floats) -> None:
    """out = target + tau (online - target), each (n,) float32 (Lillicrap et al., 2016)."""
    torch.lerp(torch.from_numpy(target), torch.from_numpy(online), tau, out=torch.from_numpy(out))
