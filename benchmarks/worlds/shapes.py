"""The shapes of the built-in game, for benchmarks without an environment."""

from __future__ import annotations

import gymnasium
import numpy as np

from rtagent.memory.blueprint import Blueprint, TensorSpec

STACK = (4, 84, 84)


def blueprint() -> Blueprint:
    """Shapes of the built-in game."""
    return Blueprint(
        rate_hz=60.0,
        frame_shape=STACK[1:],
        frame_dtype="uint8",
        frame_stack=STACK[0],
        observation_space=gymnasium.spaces.Box(0, 255, STACK, np.uint8),
        action_space=gymnasium.spaces.Discrete(3),
        action_shape=(),
        action_dtype="int32",
        action_meanings=(),
        network="none",
        tensors=(TensorSpec("none", (1,)),),
        screen=True,
    )
