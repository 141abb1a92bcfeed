"""Inputs of networks: an observation, and in some runs the pending actions (`memory/pending.py`).

A network of such a run is built for a `Dict({"observation": Box, "pending": Box})`, and called with
a batch of each, in this order.
"""

from __future__ import annotations

from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from torch import Tensor

from rtagent.errors import UserError
from rtagent.memory.blueprint import Blueprint
from rtagent.memory.pending import PendingActions

Inputs: TypeAlias = tuple[Tensor, ...]
"""A batch of observations, and in some runs one of pending actions, (B, width) float32."""
MOST_PENDING = 1 << 16
"""Most numbers of which the pending actions may consist."""


def input_space(blueprint: Blueprint) -> spaces.Space[Any]:
    """The observation space for which the networks of a run are built.

    Raises:
        UserError: the pending actions are too many numbers.
    """
    space: spaces.Space[Any] = blueprint.observation_space
    pending = PendingActions.of(blueprint)
    if pending is None:
        return space
    if pending.width > MOST_PENDING:
        raise UserError(
            f"env.pending_actions = {pending.count} makes {pending.width} inputs of these actions, "
            f"and {MOST_PENDING} are the most; use fewer"
        )
    box = spaces.Box(-1.0, 1.0, (pending.width,), np.float32)
    return spaces.Dict({"observation": space, "pending": box})


def pending_width(space: spaces.Space[Any]) -> int:
    """How many numbers the pending actions are; 0 if the network is given none."""
    return prod(space["pending"].shape or ()) if isinstance(space, spaces.Dict) else 0


def observation_part(space: spaces.Space[Any]) -> spaces.Box:
    """The space of a stacked observation."""
    part = space["observation"] if isinstance(space, spaces.Dict) else space
    assert isinstance(part, spaces.Box)
    return part


def observation_shape(space: spaces.Space[Any]) -> tuple[int, ...]:
    """The shape of a stacked observation."""
    return tuple(observation_part(space).shape)


def observation_scale(space: spaces.Space[Any]) -> float:
    """The factor from observations to [0, 1]; 1 where they are no pixels."""
    return 1.0 / 255.0 if observation_part(space).dtype == np.uint8 else 1.0


def zeros(space: spaces.Space[Any], batch: int) -> tuple[npt.NDArray[Any], ...]:
    """A batch of inputs: observations, and pending actions if the network is given any."""
    part, width = observation_part(space), pending_width(space)
    observations = np.zeros((batch, *part.shape), part.dtype)
    return (observations, np.zeros((batch, width), np.float32)) if width else (observations,)
