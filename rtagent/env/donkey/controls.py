"""The two kinds of action of the DonkeyCar environment, as steering, throttle and brake."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

STEERINGS = (-1.0, -0.5, 0.0, 0.5, 1.0)
THROTTLES = (0.0, 0.3, 0.6)

Control = tuple[float, float, float]
"""Steering -1 to 1, throttle 0 to 1, brake 0 to 1."""

_SIDES = ("HARD_LEFT", "LEFT", "", "RIGHT", "HARD_RIGHT")
_PACES = ("COAST", "SLOW", "FAST")
BRAKE: Control = (0.0, 0.0, 1.0)
AT_REST: dict[str, Control] = {"coast": (0.0, 0.0, 0.0), "brake": BRAKE}
"""The controls that the noop may stand for, by the names that `noop` takes."""


class Grid:
    """Every steering with every throttle, then the brake: Discrete(16).

    Attributes:
        space: Discrete.
        noop: index of the action that coasts straight on, or brakes.
        meanings: a word for each action.
    """

    def __init__(self, noop: str) -> None:
        self._table = [(side, pace, 0.0) for pace in THROTTLES for side in STEERINGS] + [BRAKE]
        self.space = gym.spaces.Discrete(len(self._table))
        words = ["_".join(filter(None, (pace, side))) for pace in _PACES for side in _SIDES]
        self.meanings = [*words, "BRAKE"]
        self.noop = self._table.index(AT_REST[noop])

    def of(self, action: Any) -> Control:
        """The control for an action."""
        return self._table[int(action)]


class Continuous:
    """Box float32: steering -1 to 1, throttle 0 to 1, without a brake and without `meanings`.

    `noop` is zeros. With `brake`, this action brakes; otherwise it coasts.
    """

    def __init__(self, noop: str) -> None:
        low, high = np.array([-1.0, 0.0], np.float32), np.array([1.0, 1.0], np.float32)
        self.space = gym.spaces.Box(low, high, dtype=np.float32)
        self.noop = np.zeros(2, np.float32)
        self.meanings: list[str] = []
        self._at_rest = AT_REST[noop]

    def of(self, action: Any) -> Control:
        """The control for an action."""
        values = np.clip(np.asarray(action, np.float32), self.space.low, self.space.high)
        steering, throttle = map(float, values)
        return (steering, throttle, 0.0) if steering or throttle else self._at_rest
