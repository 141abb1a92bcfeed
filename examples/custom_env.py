"""An environment of your own: any Gymnasium environment, registered when its module is imported.

`rtagent` calls `step` once per tick of the wall clock, and never waits for the agent. Two
attributes are worth setting: the rate, and which action does nothing. Whether an environment is fit
for that:

    PYTHONPATH=examples rtagent check-env custom_env:Pursuit-v0
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

Observation = npt.NDArray[np.float32]


class Pursuit(gym.Env[Observation, np.int64]):
    """Follow a point that wanders along a line, whether or not you move.

    Observation: own position, the target's position, the target's direction. Actions: stay, left,
    right. Reward: 1 on the target, 0 at a distance of 1 or more.

    Args:
        speed: distance per tick.
    """

    metadata = {"render_modes": [], "render_fps": 50}  # noqa: RUF012 - as Gymnasium declares it
    noop_action = 0

    def __init__(self, speed: float = 0.02) -> None:
        self.observation_space = gym.spaces.Box(-1.0, 1.0, (3,), np.float32)
        self.action_space = gym.spaces.Discrete(3)
        self._speed = speed
        self._own = self._target = 0.0
        self._direction = 1.0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Both start at random places."""
        super().reset(seed=seed)
        self._own, self._target = self.np_random.uniform(-1.0, 1.0, 2)
        self._direction = float(self.np_random.choice((-1.0, 1.0)))
        return self._observation(), {}

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """One tick: the target moves, and now and then turns round."""
        if abs(self._target) >= 1.0:
            self._direction = -float(np.sign(self._target))
        elif self.np_random.random() < 0.02:
            self._direction = -self._direction
        self._target = float(np.clip(self._target + self._speed * self._direction, -1.0, 1.0))
        move = (0.0, -1.5, 1.5)[int(action)] * self._speed
        self._own = float(np.clip(self._own + move, -1.0, 1.0))
        reward = max(0.0, 1.0 - abs(self._own - self._target))
        return self._observation(), reward, False, False, {}

    def _observation(self) -> Observation:
        return np.array([self._own, self._target, self._direction], np.float32)


gym.register("Pursuit-v0", entry_point="custom_env:Pursuit", max_episode_steps=500)
