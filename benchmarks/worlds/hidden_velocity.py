"""CartPole without its velocities, so that one frame does not tell where things move."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

VISIBLE = [0, 2]
"""Indices of the cart's position and the pole's angle in CartPole's observation."""


class HiddenVelocity(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Shows only positions."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        box = env.observation_space
        assert isinstance(box, spaces.Box)
        self.observation_space = spaces.Box(box.low[VISIBLE], box.high[VISIBLE], dtype=np.float32)

    def observation(self, observation: Any) -> Any:
        """Leave the velocities out: (4,) to (2,)."""
        return observation[VISIBLE]


def make(**settings: Any) -> gymnasium.Env[Any, Any]:
    """CartPole without its velocities."""
    return HiddenVelocity(gymnasium.make("CartPole-v1", **settings))


gymnasium.register("HiddenVelocity-v0", entry_point=make)
