"""CartPole-v1 with our algorithms and with Stable-Baselines3's DQN: the same curve?

No wall clock: the world waits for the agent, on both sides. Both have the same network (two hidden
layers), Adam, replay, discount, exploration, and one update every second step; n_step is 1, and the
target network is copied after as many updates. All sides of a seed run one after the other.

    python -m benchmarks.reference [--seeds 5] [--steps 30000] [--json]

For each side and seed: the mean return of the last 20 training episodes, exploration included, and
the steps until 20 successive episodes first reached a mean of 195. A side passes if its median
final return is at least the worst seed of Stable-Baselines3's: it lies within their spread, or
above it.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import torch

from benchmarks.offline_learning import Offline
from rtagent.clock import MonotonicClock
from rtagent.config import Config, parse_config

SOLVED = 195.0
OVER_EPISODES = 20
THEIRS = "sb3-dqn"
OURS = ("dqn", "double-dqn", "c51")
STEPS_PER_UPDATE = 2
LEARNING_STARTS = 1000
EXPLORATION_STEPS = 5000
EPSILON_END = 0.04
TARGET_PERIOD = 100
"""Updates."""
WIDTH = 2
"""Of the mlp: 128 units per layer."""


@dataclass(frozen=True)
class Outcome:
    """One seed of one side.

    Attributes:
        final: mean return of the last episodes.
        solved_at: steps until a mean return of `SOLVED`; none: never.
        seconds: what it took.
    """

    final: float
    solved_at: int | None
    seconds: float


def outcome(returns: list[float], lengths: list[int], seconds: float) -> Outcome:
    """Sum up the episodes of one run, in their order."""
    ends = np.cumsum(lengths)
    windows = np.lib.stride_tricks.sliding_window_view(np.array(returns), OVER_EPISODES)
    reached = np.flatnonzero(windows.mean(axis=1) >= SOLVED)
    solved_at = int(ends[reached[0] + OVER_EPISODES - 1]) if len(reached) else None
    return Outcome(float(np.mean(returns[-OVER_EPISODES:])), solved_at, seconds)


def our_config(algorithm: str, seed: int) -> Config:
    """The common settings, as ours are called."""
    updates = (EXPLORATION_STEPS - LEARNING_STARTS) // STEPS_PER_UPDATE
    return parse_config(
        {
            "env": {"id": "CartPole-v1"},
            "policy": {
                "network": "mlp", "width": WIDTH, "exploration_hold_ticks": 1,
                "epsilon_end": EPSILON_END, "epsilon_steps": updates,
            },
            "learning": {
                "algorithm": algorithm, "n_step": 1, "batch_size": 64, "learning_rate": 1e-3,
                "target_period": TARGET_PERIOD, "learning_starts": LEARNING_STARTS,
                "publish_every": 1, "v_min": 0.0, "v_max": 100.0,
            },
            "replay": {"capacity": 50_000},
            "run": {"seed": seed},
        }
    )


def run_ours(algorithm: str, steps: int, seed: int) -> Outcome:
    """One seed of one of our algorithms."""
    clock = MonotonicClock()
    began = clock.now()
    offline = Offline(our_config(algorithm, seed), 0, 1.0 / STEPS_PER_UPDATE)
    offline.run(steps, 0, clock)
    return outcome(offline.returns, offline.lengths, clock.now() - began)


def run_theirs(steps: int, seed: int) -> Outcome:
    """One seed of Stable-Baselines3's DQN."""
    from stable_baselines3 import DQN
    from stable_baselines3.common.monitor import Monitor

    clock = MonotonicClock()
    began = clock.now()
    learning = our_config("dqn", seed).learning
    world = Monitor(gym.make("CartPole-v1"))
    agent = DQN(
        "MlpPolicy", world, device="cpu", seed=seed,
        learning_rate=learning.learning_rate, gamma=learning.gamma,
        batch_size=learning.batch_size, learning_starts=LEARNING_STARTS,
        max_grad_norm=learning.gradient_clip, buffer_size=50_000,
        train_freq=STEPS_PER_UPDATE, gradient_steps=1,
        target_update_interval=TARGET_PERIOD * STEPS_PER_UPDATE,
        exploration_fraction=EXPLORATION_STEPS / steps, exploration_final_eps=EPSILON_END,
        policy_kwargs={"net_arch": [64 * WIDTH, 64 * WIDTH]},
    )
    agent.learn(steps)
    returns = world.get_episode_rewards()
    return outcome(returns, world.get_episode_lengths(), clock.now() - began)


def verdict(side: list[Outcome], reference: list[Outcome]) -> str:
    """Where the median final return of a side lies among the seeds of the reference."""
    median = float(np.median([each.final for each in side]))
    finals = [each.final for each in reference]
    if median < min(finals):
        return "below their spread"
    return "within their spread" if median <= max(finals) else "above their spread"


def table(outcomes: dict[str, list[Outcome]]) -> str:
    """Every side and seed, medians, and the verdicts."""
    lines = [f"{'':12}{'final return, per seed':38}{'median':>8}  {'steps to 195, per seed':36}"]
    for name, side in outcomes.items():
        finals = " ".join(f"{each.final:6.1f}" for each in side)
        solved = " ".join(f"{each.solved_at or 'never':>6}" for each in side)
        median = np.median([each.final for each in side])
        said = "" if name == THEIRS else verdict(side, outcomes[THEIRS])
        lines.append(f"{name:12}{finals:38}{median:8.1f}  {solved:36}{said}")
    return "\n".join(lines)


def main() -> None:
    """Run every side of every seed, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=30_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    outcomes: dict[str, list[Outcome]] = {name: [] for name in (THEIRS, *OURS)}
    for seed in range(options.seeds):
        for name, side in outcomes.items():
            run = run_theirs(options.steps, seed) if name == THEIRS else run_ours(
                name, options.steps, seed
            )
            side.append(run)
            print(
                f"seed {seed} {name}: {run.final:.1f}, 195 at {run.solved_at}, "
                f"{run.seconds:.0f} s", file=sys.stderr, flush=True,
            )
    if options.json:
        answer = {
            name: {
                "final": [each.final for each in side],
                "steps_to_195": [each.solved_at for each in side],
                "seconds": [each.seconds for each in side],
                "verdict": None if name == THEIRS else verdict(side, outcomes[THEIRS]),
            }
            for name, side in outcomes.items()
        }
        print(json.dumps(answer, indent=2))
        return
    print(table(outcomes))


if __name__ == "__main__":
    main()
