"""Starfall with the positions of boat and stars as its observation, not a picture of them.

What a policy has to learn about delay is the same, and nothing has to be learned about seeing.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rtagent.env.gameboy.starfall import Starfall
from rtagent.env.registry import register

LARGEST = {
    "paddle_x": 128, "star0_x": 144, "star0_y": 128, "star1_x": 144, "star1_y": 128, "level": 11,
}
"""Variables of the cartridge and their largest values: from level 11 on stars fall no faster."""


class Positions(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Shows the cartridge's variables, (6,) float32 in [0, 1]: x of the boat, x and y of both stars
    in pixels, a y of 0 where there is no star, and the level, which tells how fast they fall."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self.observation_space = spaces.Box(0.0, 1.0, (len(LARGEST),), np.float32)

    def observation(self, observation: Any) -> NDArray[np.float32]:
        """The variables, whatever the picture."""
        game = self.env.unwrapped
        assert isinstance(game, Starfall)
        return np.array(
            [min(1.0, game.u8(name) / most) for name, most in LARGEST.items()], np.float32
        )


def make(**settings: Any) -> gymnasium.Env[Any, Any]:
    """Starfall without its pictures."""
    register()
    return Positions(gymnasium.make("rtagent/Starfall-v0", **settings))


gymnasium.register("StarfallPositions-v0", entry_point=make)
