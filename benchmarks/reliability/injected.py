"""A world and a policy that run injected code inside their own processes.

The code is in a file of the folder `$INJECTED` that is named after the role. It is run once, at the
next step, and may use the names of this module.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import gymnasium
import numpy as np
import torch

from rtagent.processes.worker import WorkerContext


def run_injected(role: str) -> None:
    """Run the injected code for this role, if any."""
    with suppress(FileNotFoundError, NotADirectoryError):
        path = Path(os.environ.get("INJECTED", os.devnull), role)
        code = path.read_text()
        path.unlink()
        exec(compile(code, str(path), "exec"), globals())


def context() -> WorkerContext[Any]:
    """The context of the calling worker."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        for value in frame.f_locals.values():
            if isinstance(value, WorkerContext):
                return value
        frame = frame.f_back
    raise LookupError("not in a worker")


def say_raw(packet: bytes) -> None:
    """Send the supervisor bytes that are no message."""
    context().pipe._end.send(packet)


def nap(seconds: float) -> None:
    """Sleep, so that the step is slow."""
    time.sleep(seconds)


class World(gymnasium.Env[Any, Any]):
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
        run_injected("environment")
        return self._seen(), 1.0, self._count % 200 == 0, False, {}

    def _seen(self) -> Any:
        return np.sin(self._count / np.arange(1, 5)).astype(np.float32)


class Policy(torch.nn.Module):
    """A small policy."""

    def __init__(self, observation_space: Any, action_space: Any) -> None:
        super().__init__()
        size = int(np.prod(observation_space.shape))
        self.layer = torch.nn.Linear(size, int(action_space.n))

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Action values."""
        run_injected("inference" if len(observations) == 1 else "learner")
        values: torch.Tensor = self.layer(observations.flatten(1).float())
        return values


gymnasium.register("Injected-v0", entry_point=f"{__name__}:World")
