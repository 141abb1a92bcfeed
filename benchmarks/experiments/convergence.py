"""Convergence: do learners come to the same returns in a lower precision? (AP-DRL, Fig. 11)

A trial plays one game with one seed in every precision, in virtual time and by the live learner:
master weights in float32, and in float16 a loss scale. Acting is in float32 in all. The reward of a
run is the mean return of the episodes that end in its last third, exploration included; the reward
error (AP-DRL, Table III) is how far the mean over the seeds is from that of float32, in percent of
it. Beside it stands how far chance takes it: the same between random halves of all runs (95 % of
10,000 splits), for two sets of runs of one precision are not the same either.

InvertedPendulum needs MuJoCo, which comes with the extra `bench`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import rtagent
from benchmarks.experiment import VIRTUAL, Experiment
from benchmarks.learning_runs import EXAMPLES, late_return, learn_virtually
from benchmarks.results import Results
from rtagent.cli.output import known
from rtagent.config import LEARNING_PRECISIONS
from rtagent.telemetry.learning_curve import moving_mean

INFERENCE_S = UPDATE_S = 0.001
"""An action is executed one tick after its frame; `learning.updates_per_tick` bounds updates."""
QUICK_MINUTES = 1.0
LAST_EPISODES = 100
"""The curves are means over so many episodes."""
SPLITS = 10_000
PANELS_IN_A_ROW = 3

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Game:
    """What is learned.

    Attributes:
        example: file of `examples/` with the configuration.
        minutes: length of a run in virtual time.
        settings: overrides of the example's settings.
    """

    example: str
    minutes: float
    settings: tuple[str, ...]


DDPG = (
    "learning.algorithm=ddpg", "policy.width=1", "policy.epsilon_end=0.05",
    "policy.epsilon_steps=5000", "learning.n_step=1", "learning.updates_per_tick=0.5",
    "learning.learning_starts=1000", "replay.capacity=100000",
)
GAMES = {
    "CartPole, DQN": Game("cartpole.toml", 12.0, (
        # Targets over ten ticks, a slow target network, steps that become small, nothing
        # overwritten: else what was learned is soon forgotten.
        "learning.algorithm=dqn", "learning.n_step=10",
        "learning.updates_per_tick=0.5", "learning.learning_rate=3e-4",
        "learning.learning_rate_steps=100000", "learning.learning_rate_end_factor=0.00333",
        "learning.target_tau=0.002", "policy.epsilon_end=0.1", "replay.capacity=240000",
    )),
    "CartPole, PPO": Game("cartpole_ppo.toml", 10.0, ("learning.learning_rate=3e-4",)),
    "CartPole, A2C": Game("cartpole_ppo.toml", 12.0, (
        "learning.algorithm=a2c", "learning.rollout=64", "learning.publish_every=1",
        "learning.learning_rate=7e-4",
    )),
    "InvertedPendulum, DDPG": Game("pendulum.toml", 9.0, (
        "env.id=InvertedPendulum-v5", "env.rate_hz=100", *DDPG, "learning.learning_rate=3e-4",
        "learning.n_step=3", "policy.epsilon_end=0.02",
    )),
    "MountainCarContinuous, DDPG": Game("pendulum.toml", 12.0, (
        # Noise that pushes one way for a while: short pushes never reach the top.
        "env.id=MountainCarContinuous-v0", "policy.exploration_hold_ticks=40", *DDPG,
    )),
    "LunarLander, PPO": Game("cartpole_ppo.toml", 40.0, (
        "env.id=LunarLander-v3", "env.rate_hz=100", "env.default_action=noop",
        "learning.gamma=0.995", "learning.learning_rate=3e-4", "learning.rollout=2048",
    )),
    "LunarLanderContinuous, DDPG": Game("pendulum.toml", 40.0, (
        "env.id=LunarLander-v3", "env.kwargs={continuous = true}", "env.rate_hz=100", *DDPG,
        # It hovers before it lands: with noise of single ticks to the end of a run, with noise that
        # is held for up to 16 minutes.
        "policy.exploration_hold_ticks=10", "policy.epsilon_steps=20000",
        "policy.epsilon_end=0.1", "policy.width=4", "learning.learning_rate=5e-4",
        "learning.n_step=5", "learning.learning_starts=2000", "replay.capacity=200000",
    )),
    "Breakout of 10 x 10 cells, DQN": Game("cartpole.toml", 20.0, (
        # With a paddle of one cell, one action at random is enough to miss the ball.
        "env.id=benchmarks.worlds.bricks:BricksWorld-v0", "env.kwargs={paddle = 3}",
        "env.rate_hz=60", "env.default_action=noop", "policy.width=2",
        # With less exploration, or single random actions, some runs kept the ball from one of its
        # two starts alone for minutes.
        "policy.epsilon_steps=25000", "policy.exploration_hold_ticks=4",
        # A horizon of 20 ticks: the ball comes back to the paddle within it.
        "learning.algorithm=dqn", "learning.gamma=0.95", "learning.n_step=5",
        "learning.batch_size=32",
    )),
}


def trials(quick: bool) -> list[dict[str, Any]]:
    """Every game; `--quick`: a minute of the first."""
    if quick:
        return [{"time": VIRTUAL, "game": next(iter(GAMES)), "minutes": QUICK_MINUTES}]
    return [
        {"time": VIRTUAL, "game": name, "minutes": game.minutes} for name, game in GAMES.items()
    ]


def run(game: str, minutes: float, seed: int, **_: Any) -> dict[str, Any]:
    """One seed in every precision; figures by names that end in the precision's."""
    figures: dict[str, Any] = {}
    for precision in LEARNING_PRECISIONS:
        config = rtagent.load_config(EXAMPLES / GAMES[game].example, [
            *GAMES[game].settings, f"learning.precision={precision}", "policy.precision=float32",
        ], {})
        found = learn_virtually(
            config, minutes, seed=seed, inference_s=INFERENCE_S, update_s=UPDATE_S
        )
        figures |= {
            f"reward_{precision}": late_return(found["episodes"], minutes),
            f"updates_{precision}": found["updates"], f"curve_{precision}": found["episodes"],
        }
    for precision in LEARNING_PRECISIONS[1:]:
        apart = figures[f"reward_{precision}"] - figures["reward_float32"]
        figures[f"difference_{precision}"] = apart
    return figures


def reward_error(full: Floats, low: Floats) -> tuple[float, float]:
    """How far the mean of one set of runs is from that of another, and how far chance takes it.

    Args:
        full: (seeds,) rewards of float32.
        low: (seeds,) rewards of a lower precision.

    Returns:
        Both in percent of the mean of the first; NaN if that is 0.
    """
    mean = abs(float(full.mean()))
    scale = 100.0 / mean if mean else np.nan
    everything = np.concatenate([full, low])
    rng = np.random.default_rng(0)
    orders = rng.permuted(np.tile(everything, (SPLITS, 1)), axis=1)
    gaps = orders[:, : len(full)].mean(axis=1) - orders[:, len(full) :].mean(axis=1)
    chance = float(np.percentile(np.abs(gaps), 95))
    return scale * abs(float(low.mean() - full.mean())), scale * chance


def draw(results: Results, figure: Any) -> None:
    """As Fig. 11: mean and standard deviation over the seeds; the reward errors above each game."""
    games = results.values("game")
    columns = min(len(games), PANELS_IN_A_ROW)
    for place, game in enumerate(games, 1):
        axes = figure.add_subplot(-(-len(games) // columns), columns, place)
        trials = [
            each for each in results.where(game=game).trials if "failed" not in each
        ]
        for number, precision in enumerate(LEARNING_PRECISIONS):
            _draw_curve(axes, trials, precision, f"C{number}")
        axes.set(
            title="\n".join([game, *_errors(trials)]), xlabel="minutes",
            ylabel=f"mean return of {LAST_EPISODES} episodes",
        )
        axes.grid(alpha=0.3)
        axes.legend()
    figure.suptitle("mean and standard deviation over the seeds")


def _draw_curve(axes: Any, trials: Sequence[Any], precision: str, colour: str) -> None:
    curves = [np.array(each["figures"][f"curve_{precision}"], np.float64).T for each in trials]
    if not curves:
        return
    ends_s = np.linspace(0.0, min(ends[-1] for ends, _ in curves), 200)
    means = np.array([
        np.interp(ends_s, ends, moving_mean(returns, LAST_EPISODES)) for ends, returns in curves
    ])
    middle, spread = means.mean(axis=0), means.std(axis=0)
    axes.plot(ends_s / 60.0, middle, color=colour, label=precision)
    axes.fill_between(ends_s / 60.0, middle - spread, middle + spread, color=colour, alpha=0.2)


def _errors(trials: Sequence[Any]) -> Iterable[str]:
    """A line for each lower precision, where there are seeds to compare."""
    rewards = {
        precision: np.array([each["figures"][f"reward_{precision}"] for each in trials])
        for precision in LEARNING_PRECISIONS
    }
    if len(trials) > 1:
        for precision in LEARNING_PRECISIONS[1:]:
            error, chance = reward_error(rewards["float32"], rewards[precision])
            shown, by_chance = (known(each, "{:.1f} %") for each in (error, chance))
            yield f"{precision}: reward error {shown} (chance: {by_chance})"


EXPERIMENT = Experiment(trials, run, draw, size=(15, 10), seeds=(0, 1, 2, 3, 4))
