"""Our algorithms and Stable-Baselines3's on the same world: the same curve?

No wall clock: the world waits for the agent, on both sides. `cartpole` compares ours of the DQN
family with their DQN on CartPole-v1; `pendulum`, `pendulum-ddpg` and `pendulum-sac` ours of that
name, TD3 the first, with theirs on Pendulum-v1. Both sides have the same network (two hidden
layers), Adam, replay, discount and as many updates; n_step is 1, and the target networks follow
alike. Exploration is the same on Pendulum; on CartPole ours begins to fall with the first update,
theirs with the first step, and both reach their end at the same step. `cartpole-ppo` and
`cartpole-a2c` compare ours with theirs on CartPole-v1 by the default settings of ours, ledger,
acting process and learner included, in virtual time (`rtagent.virtual`), where inference and
updates are over before the next tick. All sides of a seed run one after the other. `--quick` runs
two seeds, on Pendulum of half as many steps.

    rtagent bench reference [--world NAME] [--seeds 5] [--steps N] [--quick] [--json]

For each side and seed: the mean return of the last 20 training episodes, exploration included, and
the steps until 20 successive episodes first reached a mean that counts as solved. A side passes if
its median final return is at least the worst seed of Stable-Baselines3's: it lies within their
spread, or above it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import torch

import rtagent.virtual
from benchmarks.command import command_line
from benchmarks.learning.offline_learning import Offline
from rtagent.cli.output import print_json
from rtagent.clock import MonotonicClock
from rtagent.config import Config
from rtagent.config_sources import parse_config
from rtagent.errors import UserError
from rtagent.learning.algorithms.actor_critic import TARGET_TAU

OVER_EPISODES = 20
STEPS_PER_UPDATE = 2
LEARNING_STARTS = 1000
EXPLORATION_STEPS = 5000
EPSILON_END = 0.04
TARGET_PERIOD = 100
"""Updates between two copies into the target network."""
WIDTH = 2
"""Width of the MLP: 128 units per layer."""
NOISE = 0.1
"""TD3, DDPG: standard deviation of the exploration, in units of half an action's range."""
ON_POLICY_HZ = 50.0
INFERENCE_S = UPDATE_S = 1e-4
"""In virtual time, so short that a rollout is learned from before the next tick."""


@dataclass(frozen=True)
class Outcome:
    """One seed of one side.

    Attributes:
        final: mean return of the last episodes.
        solved_at: steps until a mean return that counts as solved. If None, never.
        seconds: wall-clock time of the run.
    """

    final: float
    solved_at: int | None
    seconds: float


@dataclass(frozen=True)
class World:
    """What both sides learn.

    Attributes:
        theirs: name of their algorithm.
        ours: names of ours.
        solved: mean return that counts as solved.
        steps: per seed.
        quick_steps: per seed, if it must be quick.
        steps_per_update: for both sides.
        config: ours, from an algorithm and a seed.
        agent: theirs, from a world, the steps and a seed.
        run: ours, from the world, an algorithm, the steps and a seed.
    """

    theirs: str
    ours: tuple[str, ...]
    solved: float
    steps: int
    quick_steps: int
    steps_per_update: int
    config: Callable[[str, int], Config]
    agent: Callable[[gym.Env[Any, Any], int, int], Any]
    run: Callable[[World, str, int, int], Outcome]


def outcome(
    returns: list[float], lengths: list[int], seconds: float, solved: float
) -> Outcome:
    """The outcome of one run, from its episodes in their order.

    Raises:
        UserError: there are none.
    """
    if not returns:
        raise UserError("no episode ended: play for longer (--steps)")
    # A mean over fewer episodes does not count as solved.
    padded = np.concatenate([np.full(OVER_EPISODES - 1, -np.inf), returns])
    windows = np.lib.stride_tricks.sliding_window_view(padded, OVER_EPISODES)
    reached = np.flatnonzero(windows.mean(axis=1) >= solved)
    solved_at = int(np.cumsum(lengths)[reached[0]]) if len(reached) else None
    return Outcome(float(np.mean(returns[-OVER_EPISODES:])), solved_at, seconds)


def cartpole_config(algorithm: str, seed: int) -> Config:
    """The common settings on CartPole, as ours are called."""
    updates = (EXPLORATION_STEPS - LEARNING_STARTS) // STEPS_PER_UPDATE
    return _off_policy_config(
        "CartPole-v1", algorithm, seed, {"epsilon_end": EPSILON_END, "epsilon_steps": updates},
        {"target_period": TARGET_PERIOD, "v_min": 0.0, "v_max": 100.0},
    )


def pendulum_config(algorithm: str, seed: int) -> Config:
    """The common settings on Pendulum, as ours are called."""
    exploration = {"epsilon_end": NOISE, "epsilon_steps": 1}
    return _off_policy_config("Pendulum-v1", algorithm, seed, exploration, {"gradient_clip": 0.0})


def _off_policy_config(
    env_id: str, algorithm: str, seed: int, policy: dict[str, Any], learning: dict[str, Any]
) -> Config:
    return parse_config(
        {
            "env": {"id": env_id},
            "policy": {"network": "mlp", "width": WIDTH, "exploration_hold_ticks": 1, **policy},
            "learning": {
                "algorithm": algorithm, "n_step": 1, "batch_size": 64, "learning_rate": 1e-3,
                "learning_starts": LEARNING_STARTS, "publish_every": 1, **learning,
            },
            "replay": {"capacity": 50_000},
            "run": {"seed": seed},
        }
    )


def on_policy_config(algorithm: str, seed: int) -> Config:
    """The default settings on CartPole, as ours are called."""
    return parse_config(
        {
            "env": {"id": "CartPole-v1", "rate_hz": ON_POLICY_HZ},
            "policy": {"network": "mlp"},
            "inference": {"processes": 1},
            "learning": {"algorithm": algorithm, "learning_starts": 1},
            "run": {"seed": seed},
        }
    )


def run_ours(world: World, algorithm: str, steps: int, seed: int) -> Outcome:
    """One seed of one of our algorithms."""
    clock = MonotonicClock()
    began = clock.now()
    offline = Offline(world.config(algorithm, seed), 0, 1.0 / world.steps_per_update)
    offline.run(steps)
    return outcome(offline.returns, offline.lengths, clock.now() - began, world.solved)


def run_virtual(world: World, algorithm: str, steps: int, seed: int) -> Outcome:
    """One seed of one of our on-policy algorithms, in virtual time."""
    clock = MonotonicClock()
    began = clock.now()
    config = world.config(algorithm, seed)
    found = rtagent.virtual.run(
        config, seconds=steps / ON_POLICY_HZ, inference_s=INFERENCE_S, update_s=UPDATE_S
    )
    ends = np.flatnonzero(found.rows["flags"]) + 1
    lengths = np.diff(ends, prepend=0).tolist()
    return outcome(found.returns.tolist(), lengths, clock.now() - began, world.solved)


def run_theirs(world: World, steps: int, seed: int) -> Outcome:
    """One seed of Stable-Baselines3's algorithm."""
    from stable_baselines3.common.logger import Logger
    from stable_baselines3.common.monitor import Monitor

    clock = MonotonicClock()
    began = clock.now()
    played = Monitor(gym.make(world.config("auto", seed).env.id))
    agent = world.agent(played, steps, seed)
    agent.set_logger(Logger(None, []))  # by default it leaves a folder in /tmp
    agent.learn(steps)
    returns = played.get_episode_rewards()
    return outcome(
        returns, played.get_episode_lengths(), clock.now() - began, world.solved
    )


def their_dqn(world: gym.Env[Any, Any], steps: int, seed: int) -> Any:
    """Stable-Baselines3's DQN with the settings of `cartpole_config`."""
    from stable_baselines3 import DQN

    learning = cartpole_config("dqn", seed).learning
    return DQN(
        "MlpPolicy", world, device="cpu", seed=seed,
        learning_rate=learning.learning_rate, gamma=learning.gamma,
        batch_size=learning.batch_size, learning_starts=LEARNING_STARTS,
        max_grad_norm=learning.gradient_clip, buffer_size=50_000,
        train_freq=STEPS_PER_UPDATE, gradient_steps=1,
        target_update_interval=TARGET_PERIOD * STEPS_PER_UPDATE,
        exploration_fraction=EXPLORATION_STEPS / steps, exploration_final_eps=EPSILON_END,
        policy_kwargs={"net_arch": [64 * WIDTH, 64 * WIDTH]},
    )


def their_actor_critic(name: str, world: gym.Env[Any, Any], steps: int, seed: int) -> Any:
    """Stable-Baselines3's TD3, DDPG or SAC with the settings of `pendulum_config`."""
    import stable_baselines3
    from stable_baselines3.common.noise import NormalActionNoise

    learning = pendulum_config(name, seed).learning
    settings: dict[str, Any] = {}
    if name != "sac":
        settings["action_noise"] = NormalActionNoise(np.zeros(1), np.full(1, NOISE))
    if name == "td3":
        settings["policy_delay"] = learning.policy_delay
        settings["target_policy_noise"] = learning.target_noise
        settings["target_noise_clip"] = learning.target_noise_clip
    return getattr(stable_baselines3, name.upper())(
        "MlpPolicy", world, device="cpu", seed=seed,
        learning_rate=learning.learning_rate, gamma=learning.gamma, tau=TARGET_TAU,
        batch_size=learning.batch_size, learning_starts=LEARNING_STARTS, buffer_size=50_000,
        train_freq=1, gradient_steps=1,
        policy_kwargs={"net_arch": [64 * WIDTH, 64 * WIDTH]}, **settings,
    )


def their_on_policy(name: str, world: gym.Env[Any, Any], steps: int, seed: int) -> Any:
    """Stable-Baselines3's PPO or A2C with the settings of `on_policy_config`."""
    import stable_baselines3

    config = on_policy_config(name, seed)
    learning, units = config.learning, [64 * config.policy.width] * 2
    settings: dict[str, Any] = {"use_rms_prop": False}
    if name == "ppo":
        settings = {
            "batch_size": learning.batch_size, "n_epochs": learning.epochs,
            "clip_range": learning.clip,
        }
    return getattr(stable_baselines3, name.upper())(
        "MlpPolicy", world, device="cpu", seed=seed, n_steps=learning.rollout,
        learning_rate=learning.learning_rate, gamma=learning.gamma,
        gae_lambda=learning.trace, ent_coef=learning.entropy,
        max_grad_norm=learning.gradient_clip,
        policy_kwargs={"net_arch": units, "activation_fn": torch.nn.ReLU}, **settings,
    )


def pendulum(name: str) -> World:
    """An actor-critic algorithm of ours and theirs on Pendulum."""
    return World(
        f"sb3-{name}", (name,), -250.0, 15_000, 7_500, 1, pendulum_config,
        partial(their_actor_critic, name), run_ours,
    )


def on_policy(name: str) -> World:
    """An on-policy algorithm of ours and theirs on CartPole, by our defaults."""
    return World(
        f"sb3-{name}", (name,), 195.0, 30_000, 30_000, 1, on_policy_config,
        partial(their_on_policy, name), run_virtual,
    )


WORLDS = {
    "cartpole": World(
        "sb3-dqn", ("dqn", "double-dqn", "c51"), 195.0, 30_000, 30_000, STEPS_PER_UPDATE,
        cartpole_config, their_dqn, run_ours,
    ),
    "cartpole-ppo": on_policy("ppo"),
    "cartpole-a2c": on_policy("a2c"),
    "pendulum": pendulum("td3"),
    "pendulum-ddpg": pendulum("ddpg"),
    "pendulum-sac": pendulum("sac"),
}


def verdict(side: list[Outcome], reference: list[Outcome]) -> str:
    """Where the median final return of a side lies among the seeds of the reference."""
    median = float(np.median([each.final for each in side]))
    finals = [each.final for each in reference]
    if median < min(finals):
        return "below their spread"
    return "within their spread" if median <= max(finals) else "above their spread"


def table(world: World, outcomes: dict[str, list[Outcome]]) -> str:
    """Every side and seed, medians, and the verdicts."""
    reached = f"steps to {world.solved:g}, per seed"
    lines = [f"{'':12}{'final return, per seed':38}{'median':>8}  {reached:36}"]
    for name, side in outcomes.items():
        finals = " ".join(f"{each.final:6.1f}" for each in side)
        solved = " ".join(f"{each.solved_at or 'never':>6}" for each in side)
        median = np.median([each.final for each in side])
        said = "" if name == world.theirs else verdict(side, outcomes[world.theirs])
        lines.append(f"{name:12}{finals:38}{median:8.1f}  {solved:36}{said}")
    return "\n".join(lines)


def main() -> None:
    """Run every side of every seed, and print the table."""
    parser = command_line(__doc__)
    parser.add_argument("--seeds", type=int, help="default: 5; with --quick 2")
    parser.add_argument("--quick", action="store_true", help="fewer seeds and steps")
    parser.add_argument("--world", choices=list(WORLDS), default="cartpole")
    parser.add_argument("--steps", type=int, help="per seed; default: as the world has it")
    options = parser.parse_args()
    torch.set_num_threads(1)
    world = WORLDS[options.world]
    steps = options.steps or (world.quick_steps if options.quick else world.steps)
    seeds = options.seeds or (2 if options.quick else 5)
    outcomes: dict[str, list[Outcome]] = {name: [] for name in (world.theirs, *world.ours)}
    for seed in range(seeds):
        for name, side in outcomes.items():
            theirs = name == world.theirs
            run = run_theirs(world, steps, seed) if theirs else world.run(world, name, steps, seed)
            side.append(run)
            print(
                f"seed {seed} {name}: {run.final:.1f}, {world.solved:g} at {run.solved_at}, "
                f"{run.seconds:.0f} s", file=sys.stderr, flush=True,
            )
    if options.json:
        answer = {
            name: {
                "final": [each.final for each in side],
                "solved": world.solved,
                "steps_to_solved": [each.solved_at for each in side],
                "seconds": [each.seconds for each in side],
                "verdict": (
                    None if name == world.theirs else verdict(side, outcomes[world.theirs])
                ),
            }
            for name, side in outcomes.items()
        }
        print_json(answer)
        return
    print(table(world, outcomes))


if __name__ == "__main__":
    main()
