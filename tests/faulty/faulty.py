"""Policies and environments that misbehave, for tests: imported by worker processes by name."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch

PAUSE_S = 3.0
"""Longer than a process may be silent."""


class Linear(torch.nn.Module):
    """A small honest policy."""

    def __init__(self, observation_space: Any, action_space: Any) -> None:
        super().__init__()
        size = int(np.prod(observation_space.shape))
        self.layer = torch.nn.Linear(size, int(action_space.n))

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Action values."""
        return self.layer(observations.flatten(1).float() / 255.0)


def honest(observation_space: Any, action_space: Any) -> torch.nn.Module:
    """A factory that works."""
    return Linear(observation_space, action_space)


def raises(observation_space: Any, action_space: Any) -> torch.nn.Module:
    """A factory that cannot build anything."""
    raise RuntimeError("no such layers here")


class WrongShape(Linear):
    """Answers one value too many."""

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Action values."""
        values = super().forward(observations)
        return torch.cat([values, values[:, :1]], 1)


class RaisesWhenTold(Linear):
    """Raises while the file named by FAULTY_SWITCH exists."""

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Action values."""
        if Path(os.environ["FAULTY_SWITCH"]).exists():
            raise ValueError("the policy was told to fail")
        return super().forward(observations)


class BatchesOnly(Linear):
    """Passes every check, and fails as soon as it acts; notes each time in FAULTY_SWITCH."""

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Action values."""
        if len(observations) == 1:
            with Path(os.environ["FAULTY_SWITCH"]).open("a") as failures:
                failures.write(f"{os.getpid()}\n")
            raise RuntimeError("nobody can act with this")
        return super().forward(observations)


class DeafWhenTold(Linear):
    """Neither acts nor hears SIGTERM while the file named by FAULTY_SWITCH exists; learns."""

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Action values."""
        if len(observations) == 1 and Path(os.environ["FAULTY_SWITCH"]).exists():
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
            time.sleep(3600)
        return super().forward(observations)


class World(gymnasium.Env[Any, Any]):
    """A picture that changes; raises, hangs or pauses as the file named by FAULTY_SWITCH says."""

    observation_space = gymnasium.spaces.Box(0, 255, (84, 84), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)
    metadata = {"render_modes": [], "render_fps": 60}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None) -> None:
        self._count = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """A new episode."""
        super().reset(seed=seed)
        self._obey("reset")
        return self._picture(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One tick."""
        self._count += 1
        self._obey("step")
        return self._picture(), 1.0, self._count % 200 == 0, False, {}

    def _obey(self, call: str) -> None:
        switch = Path(os.environ["FAULTY_SWITCH"])
        match switch.read_text().split() if switch.exists() else []:
            case ["hang"]:
                time.sleep(3600)
            case ["raise"] if call == "step":
                raise ValueError("the world was told to fail")
            case ["pause", what] if what == call:
                switch.unlink()
                time.sleep(PAUSE_S)

    def _picture(self) -> Any:
        return np.full((84, 84), self._count % 256, np.uint8)


class OnceOnly(World):
    """Can be built by the probe, and never again."""

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__()
        built = Path(os.environ["FAULTY_SWITCH"] + ".built")
        if built.exists():
            raise RuntimeError("there is only one such world")
        built.touch()


gymnasium.register("Faulty-v0", entry_point=World)
gymnasium.register("OnceOnly-v0", entry_point=OnceOnly)
