"""Our environments' ids in Gymnasium's registry."""

from __future__ import annotations

import gymnasium as gym

from rtagent.env.donkey import scenes

ENVIRONMENTS = {
    "rtagent/Starfall-v0": "rtagent.env.starfall:Starfall",
    "rtagent/Duel-v0": "rtagent.env.duel:Duel",
    "gameboy": "rtagent.env.game:Game",
}


def register() -> None:
    """Make our ids known to `gymnasium.make`; a second call changes nothing."""
    for name, entry_point in ENVIRONMENTS.items():
        if name not in gym.registry:
            gym.register(name, entry_point=entry_point)
    scenes.register()
