"""Batches of on-policy algorithms; used like a `Prefetcher`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from rtagent.learning.algorithms.policy_gradient import PolicyGradient
from rtagent.learning.replay.batch import Batch
from rtagent.learning.replay.look_up import Ints
from rtagent.learning.replay.rollouts import Rollout, Rollouts


class OnPolicyBatches:
    """Cuts rollouts into the batches of their updates.

    Args:
        rollouts: used by nobody else.
        algorithm: decides which decisions each update is for.
        prepare: loads the newest weights, and lets the algorithm prepare a rollout.
        rng: source of randomness.
    """

    def __init__(
        self, rollouts: Rollouts, algorithm: PolicyGradient, prepare: Callable[[Rollout], Batch],
        rng: np.random.Generator,
    ) -> None:
        self._rollouts, self._algorithm, self._prepare = rollouts, algorithm, prepare
        self._rng = rng
        self._rollout: Batch | None = None
        self._parts: deque[Ints] = deque()

    @property
    def rollout_is_done(self) -> bool:
        """Whether the batch taken last was the last one of its rollout."""
        return self._rollout is not None and not self._parts

    def take(self, count: int, timeout: float, beta: float = 1.0) -> Batch | None:
        """The next batch, of at most `count` transitions; None until the next rollout is complete.

        It never waits, and has no importance weights, so `timeout` and `beta` are not used.
        """
        if not self._parts:
            self._rollouts.refresh()
            decisions = self._algorithm.rollout_length(count)
            rollout = self._rollouts.newest(decisions)
            if rollout is None:
                return None
            self._rollout = self._prepare(rollout)
            self._parts.extend(self._algorithm.updates_of(decisions, count, self._rng))
        assert self._rollout is not None
        part = self._parts.popleft()
        if len(part) > count:
            # The batch size has been reduced since the rollout was cut.
            self._parts.appendleft(part[count:])
        return part_of(self._rollout, part[:count])

    def close(self) -> None:
        """Does nothing, for there is no thread to end."""


def part_of(batch: Batch, positions: Ints) -> Batch:
    """A copy of the transitions at some positions of a batch."""
    chosen, count = torch.from_numpy(positions), len(batch.actions)
    parts: dict[str, Any] = {
        name: each[chosen] for name, each in batch.tensors.items() if len(each) == count
    }
    return replace(batch, frames=batch.frames[positions], **parts)
