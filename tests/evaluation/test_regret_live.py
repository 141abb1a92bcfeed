"""The paused world with recorded delays beside the run in virtual time that recorded them."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import gymnasium as gym
import numpy as np

from rtagent import virtual
from rtagent.config_sources import load_config
from rtagent.env.adapter import open_environment
from rtagent.evaluation import regret
from rtagent.evaluation.probe import probe
from rtagent.evaluation.regret import PausedWorld
from rtagent.policy.acting import ActingPolicy
from rtagent.staggering.arbiter import Source

SETTINGS = (
    f"env.id={__name__}:Numbers", "env.frame_stack=3", "inference.processes=2",
    "inference.algorithm=unstaggered",
    "learning.processes=0", "policy.epsilon_start=0.0", "policy.epsilon_end=0.0",
    "inference.injected_latency_ms=40.0", "inference.injected_latency_spread=0.4",
    "inference.injected_latency_distribution=lognormal",
)


class Numbers(gym.Env[Any, Any]):
    """Shows random numbers, whatever is done, in short episodes; the reward is the action."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (4,), np.float32)
    action_space = gym.spaces.Discrete(5)
    metadata = MappingProxyType({"render_fps": 20})

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(1, 6))
        return self._see(), {}

    def step(self, action: Any) -> Any:
        self.left -= 1
        return self._see(), float(action), self.left == 0, False, {}

    def _see(self) -> Any:
        return self.np_random.uniform(-1.0, 1.0, 4).astype(np.float32)


def test_recorded_delays_give_the_actions_of_the_live_world() -> None:
    config = load_config(None, SETTINGS)
    live = virtual.run(config, seconds=40.0)
    rows = live.rows
    delays = regret.recorded_delays(rows)
    starts = np.append(False, rows["flags"][:-1] != 0)
    acted = rows["source"] != Source.DEFAULT
    # An action of the predecessor's last frame is executed at an episode's first tick.
    assert np.count_nonzero(starts & acted & (delays == 1)) > 50
    assert set(delays) > {1, 2}
    policy = ActingPolicy.of(config, probe(config), "float32")
    policy.load(live.weights)
    world = PausedWorld(
        open_environment(config.env), policy.greedy, config.run.seed, delays.tolist()
    )
    world.reset()
    for row in rows:
        reward, over = world.step()
        assert over == bool(row["flags"])
        if row["source"] != Source.DEFAULT:
            assert reward == row["reward"], row["tick"]
        if over:
            world.reset()
    assert len(set(rows["reward"][acted])) > 2
