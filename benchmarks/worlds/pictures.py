"""A world that costs nothing, for benchmarks of how frames and actions travel."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch

SHAPE = (84, 84)
RATE_HZ = 60.0


class Pictures(gymnasium.Env[Any, Any]):
    """Pictures of one grey level after the other."""

    observation_space = gymnasium.spaces.Box(0, 255, SHAPE, np.uint8)
    action_space = gymnasium.spaces.Discrete(3)
    metadata = {"render_modes": [], "render_fps": RATE_HZ}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None) -> None:
        self._tick = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Begin the only episode: it never ends."""
        super().reset(seed=seed)
        return self._see(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One tick."""
        self._tick += 1
        return self._see(), 0.0, False, False, {}

    def _see(self) -> Any:
        return np.full(SHAPE, self._tick % 256, np.uint8)


class Instant(torch.nn.Module):
    """A policy that computes next to nothing, like that of the peers."""

    def __init__(self, observation_space: Any, action_space: Any) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, int(action_space.n))

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """(B, 4, 84, 84) to (B, 3) action values."""
        values: torch.Tensor = self.layer(observations[:, -1, 0, :1].float())
        return values
