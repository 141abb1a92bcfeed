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

from benchmarks.reliability import injected

PAUSE_S = 3.0
"""Longer than a process may be silent."""


class WrongShape(injected.Policy):
    """Answers one value too many."""

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        values = super().forward(observations)
        return torch.cat([values, values[:, :1]], 1)


class RaisesWhenTold(injected.Policy):
    """Passes every check, and raises when it acts while the file named by FAULTY_SWITCH exists."""

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        if len(observations) == 1 and Path(os.environ["FAULTY_SWITCH"]).exists():
            raise ValueError("the policy was told to fail")
        return super().forward(observations)


class BatchesOnly(injected.Policy):
    """Passes every check, and fails as soon as it acts; notes each time in FAULTY_SWITCH."""

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        if len(observations) == 1:
            with Path(os.environ["FAULTY_SWITCH"]).open("a") as failures:
                failures.write(f"{os.getpid()}\n")
            raise RuntimeError("nobody can act with this")
        return super().forward(observations)


class DeafWhenTold(injected.Policy):
    """Neither acts nor hears SIGTERM while the file named by FAULTY_SWITCH exists; learns."""

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        if len(observations) == 1 and Path(os.environ["FAULTY_SWITCH"]).exists():
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
            time.sleep(3600)
        return super().forward(observations)


class World(injected.World):
    """A picture that changes; raises, hangs or pauses as the file named by FAULTY_SWITCH says."""

    observation_space = gymnasium.spaces.Box(0, 255, (84, 84), np.uint8)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """A new episode."""
        self._obey("reset")
        return super().reset(seed=seed)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One tick."""
        self._obey("step")
        return super().step(action)

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

    def _seen(self) -> Any:
        return np.full((84, 84), self._count % 256, np.uint8)


class OnceOnly(World):
    """Can be built by the probe, and never again."""

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__()
        built = Path(os.environ["FAULTY_SWITCH"] + ".built")
        if built.exists():
            raise RuntimeError("there is only one such world")
        built.touch()


def never(*ignored: Any, **also_ignored: Any) -> None:
    """An environment or a policy that waits for what does not answer."""
    time.sleep(3600)


gymnasium.register("Faulty-v0", entry_point=World)
gymnasium.register("OnceOnly-v0", entry_point=OnceOnly)
