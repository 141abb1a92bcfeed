"""A recurrent policy for tests, whose states tell where they come from."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn


class LastSeen(nn.Module):
    """Its state is the last observation, (B, 4) of (B, 1, 4); it forgets what was before."""

    state_size = 4

    def __init__(self, observation_space: Any, action_space: Any) -> None:
        super().__init__()
        self.values = nn.Linear(4, int(action_space.n))

    def forward(self, observations: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        seen = observations[:, 0]
        return self.values(seen.to(self.values.weight.dtype)), seen
