"""A policy for measurements: it sleeps for 80 ms, whatever the number of observations.

That stands for a policy on an accelerator, which keeps no processor of its machine busy.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor, nn

COMPUTE_S = 0.08


class Sleeping(nn.Module):
    """Prefers the second action, or answers with zeros."""

    answer: Tensor

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.register_buffer("answer", torch.arange(outputs, dtype=torch.float32) == 1)

    def forward(self, observations: Tensor) -> Tensor:
        """(B, ...) to (B, outputs)."""
        time.sleep(COMPUTE_S)
        return self.answer.float().expand(len(observations), -1)


def asleep(observation_space: Any, action_space: Any) -> nn.Module:
    """A factory for `policy.factory`."""
    return Sleeping(int(getattr(action_space, "n", 0)) or action_space.shape[0])
