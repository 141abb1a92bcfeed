"""A world and a policy that fail on request, for `benchmarks/faults.py`.

The folder `TROUBLE` may hold a file named after a role; what is in it happens once: `raise` (an
error of a megabyte) or the seconds that the next step takes.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch

LONG = 1_000_000


def trouble(role: str) -> None:
    """What has been asked of a role, if anything."""
    with suppress(FileNotFoundError):
        path = Path(os.environ["TROUBLE"], role)
        wanted = path.read_text()
        path.unlink()
        if wanted == "raise":
            raise RuntimeError("x" * LONG)
        time.sleep(float(wanted))


class TroubledWorld(gymnasium.Env[Any, Any]):
    """A few numbers that change."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    metadata = {"render_modes": [], "render_fps": 60}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None) -> None:
        self._count = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """A new episode."""
        super().reset(seed=seed)
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One tick."""
        self._count += 1
        trouble("environment")
        return self._seen(), float(action), self._count % 200 == 0, False, {}

    def _seen(self) -> Any:
        return np.sin(self._count / np.arange(1, 5)).astype(np.float32)


class TroubledPolicy(torch.nn.Module):
    """A small network."""

    def __init__(self, observation_space: Any, action_space: Any) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(int(np.prod(observation_space.shape)), int(action_space.n))

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Action values."""
        trouble("inference" if len(observations) == 1 else "learner")
        return self.layer(observations.flatten(1).float())


gymnasium.register("Troubled-v0", entry_point=TroubledWorld)
