"""Our environments' ids in Gymnasium's registry."""

from __future__ import annotations

import gymnasium as gym

ENVIRONMENTS = {"rtagent/Starfall-v0": "rtagent.env.starfall:Starfall"}


def register() -> None:
    """Make our ids known to `gymnasium.make`; a second call changes nothing."""
    for name, entry_point in ENVIRONMENTS.items():
        if name not in gym.registry:
            gym.register(name, entry_point=entry_point)
