"""One DQN update two ways: a plain textbook implementation, and the update of the daemon."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from rtagent.config import LearningConfig
from rtagent.learning.replay.batch import Batch
from rtagent.learning.shared_update import SharedUpdate
from rtagent.memory.array_buffer import Floats
from rtagent.policy.actor_critic import acting_part
from rtagent.policy.networks import flattened

SIDES = ("naive", "ours")


class NaiveUpdate:
    """DQN as a textbook writes it: float32, torch's defaults, a loop over the parameters.

    Args:
        network: one of the built-in networks; its own conversion of observations is switched off.
        learning: step size, clipping, period of the target network.
        foreach: whether Adam and clipping take many parameters at once. If None, torch chooses.
    """

    def __init__(
        self, network: nn.Module, learning: LearningConfig, foreach: bool | None = False
    ) -> None:
        self.network: Any = network.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        self.network._prepare = lambda observations, weight: observations
        self.target = copy.deepcopy(self.network).requires_grad_(False)
        self.updates = 0
        self._learning, self._foreach = learning, foreach
        self._optimizer = torch.optim.Adam(
            self.network.parameters(), lr=learning.learning_rate, foreach=foreach, fused=foreach
        )

    def step(self, batch: Batch) -> float:
        """One gradient step; returns the loss."""
        batch = as_floats(batch)
        with torch.no_grad():
            best = self.target(batch.next_observations).max(dim=1).values
            targets = batch.rewards + batch.discounts * best * ~batch.terminals
        values = self.network(batch.observations).gather(1, batch.actions[:, None])[:, 0]
        loss = functional.smooth_l1_loss(values, targets)
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        limit = self._learning.gradient_clip or float("inf")
        nn.utils.clip_grad_norm_(self.network.parameters(), limit, foreach=self._foreach)
        self._optimizer.step()
        self.updates += 1
        if self.updates % self._learning.target_period == 0:
            self.target.load_state_dict(self.network.state_dict())
        return float(loss.detach())

    def weights(self) -> Floats:
        """The newest weights, flat."""
        return flattened(self.network)


class DaemonUpdate:
    """An update as a learner of the daemon does it: read, compute, apply to the shared state.

    Args:
        network: as `build_learned` builds it.
        learning: algorithm, step size, clipping, how the target network follows.
    """

    def __init__(self, network: nn.Module, learning: LearningConfig) -> None:
        self._shared = SharedUpdate.private(network, learning)

    def choose_precision(self, batch_of: Callable[[int], Batch], count: int) -> str:
        """As a learner does, compute in the precision that is the fastest here; its name."""
        measured = self._shared.measure_precisions(batch_of, count, lambda: None)
        self._shared.algorithm.precision = measured.chosen
        return measured.chosen

    @property
    def updates(self) -> int:
        """Updates applied so far."""
        return self._shared.progress.updates

    def step(self, batch: Batch) -> float:
        """One update; returns the loss."""
        return self._shared.step(batch).loss

    def weights(self) -> Floats:
        """The newest weights of what acts, flat."""
        self._shared.refresh()
        return flattened(acting_part(self._shared.algorithm.network))


def as_floats(batch: Batch) -> Batch:
    """The batch with float32 observations; pixels in [0, 1]."""

    def convert(observations: Tensor) -> Tensor:
        is_pixels = observations.dtype == torch.uint8
        return observations.float() / 255.0 if is_pixels else observations

    return replace(
        batch,
        observations=convert(batch.observations),
        next_observations=convert(batch.next_observations),
    )


def random_batch(count: int, features: int | None = None) -> Batch:
    """A batch of noise, which takes as long as any other: of pixels, or of so many numbers."""
    rng = torch.Generator().manual_seed(0)
    if features is None:
        shape = (2, count, 4, 84, 84)
        observations = torch.randint(0, 256, shape, dtype=torch.uint8, generator=rng)
    else:
        observations = torch.randn(2, count, 1, features, generator=rng)
    return Batch(
        observations=observations[0],
        actions=torch.randint(0, 6, (count,), generator=rng),
        rewards=torch.randn(count, generator=rng),
        discounts=torch.full((count,), 0.99),
        next_observations=observations[1],
        terminals=torch.zeros(count, dtype=torch.bool),
        weights=torch.ones(count),
    )
