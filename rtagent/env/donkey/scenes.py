"""The scenes of the DonkeyCar simulator, and their Gymnasium ids."""

from __future__ import annotations

import gymnasium as gym

SCENES = {
    "donkey-generated-roads-v0": "generated_road",
    "donkey-warehouse-v0": "warehouse",
    "donkey-avc-sparkfun-v0": "sparkfun_avc",
    "donkey-generated-track-v0": "generated_track",
    "donkey-mountain-track-v0": "mountain_track",
    "donkey-roboracingleague-track-v0": "roboracingleague_1",
    "donkey-waveshare-v0": "waveshare",
    "donkey-minimonaco-track-v0": "mini_monaco",
    "donkey-warren-track-v0": "warren",
    "donkey-thunderhill-track-v0": "thunderhill",
    "donkey-circuit-launch-track-v0": "circuit_launch",
}
"""The scene of each id."""


def register() -> None:
    """Make the ids known to `gymnasium.make`; a second call changes nothing."""
    entry_point = "rtagent.env.donkey.environment:DonkeyCar"
    for name, scene in SCENES.items():
        if name not in gym.registry:
            # The simulator's world runs by the wall clock: no two runs are the same.
            gym.register(
                name, entry_point=entry_point, kwargs={"scene": scene}, nondeterministic=True
            )
