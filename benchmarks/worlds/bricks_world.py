"""The small Breakout as an environment of Gymnasium, observed as one vector of its four planes."""

from __future__ import annotations

from typing import Any, TypeAlias

import gymnasium
import numpy as np

from benchmarks.worlds.bricks import ACTIONS, SIZE, Bricks, Frame

RATE_HZ = 60.0

Info: TypeAlias = dict[str, Any]


class BricksWorld(gymnasium.Env[Frame, Any]):
    """See `Bricks`: a brick is worth 1, and a ball that is missed ends the episode."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (4 * SIZE * SIZE,), np.float32)
    action_space = gymnasium.spaces.Discrete(ACTIONS)
    metadata = {"render_modes": [], "render_fps": RATE_HZ}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None) -> None:
        self._game = Bricks(self.np_random)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Frame, Info]:
        """Begin an episode."""
        super().reset(seed=seed)
        if seed is not None:
            self._game = Bricks(self.np_random)
        return self._game.reset(), {}

    def step(self, action: int) -> tuple[Frame, float, bool, bool, Info]:
        """One tick."""
        return *self._game.step(int(action)), {}


gymnasium.register("BricksWorld-v0", entry_point=f"{__name__}:BricksWorld")
