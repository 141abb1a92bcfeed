"""Learning curves of the two sides of `dqn_update`, game by game, in virtual time."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import combinations
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import nn

from benchmarks.learning.dqn_sides import SIDES, DaemonUpdate, NaiveUpdate
from benchmarks.learning.offline_learning import Offline, Update
from benchmarks.results import half_interval
from rtagent.cli.output import print_json
from rtagent.clock import MonotonicClock
from rtagent.config import LearningConfig
from rtagent.config_sources import load_config
from rtagent.errors import UserError
from rtagent.telemetry.learning_curve import moving_mean

LAST_EPISODES = 20
LEAST_P = 0.05
LEAST_SEEDS = 4
"""With fewer seeds a side, no difference is so large that the permutation test would find it."""
MOST_SPLITS = 200_000
"""Where there are more splits of the seeds, as with 11 seeds a side, so many are drawn."""
LEARNERS: dict[str, Callable[[nn.Module, LearningConfig], Update]] = {
    "naive": NaiveUpdate,
    "ours": DaemonUpdate,
}


@dataclass(frozen=True)
class Game:
    """A game that both sides learn.

    Attributes:
        settings: changes of the configuration.
        ticks: played per seed.
        delay: ticks from a frame to its action's execution.
        updates_per_tick: of the learner.
    """

    settings: list[str]
    ticks: int
    delay: int
    updates_per_tick: float


GAMES = {
    "cartpole": Game(
        ["env.id=CartPole-v1", "policy.exploration_hold_ticks=1", "policy.width=2",
         "learning.batch_size=64", "learning.n_step=3", "policy.epsilon_steps=2500",
         "replay.capacity=50000"],
        ticks=20_000, delay=0, updates_per_tick=0.5,
    ),
    "starfall": Game([], ticks=54_000, delay=2, updates_per_tick=0.33),
}


@dataclass
class Curves:
    """The seeds of both sides on one game: the returns and lengths of their episodes."""

    returns: dict[str, list[list[float]]] = field(default_factory=lambda: {s: [] for s in SIDES})
    lengths: dict[str, list[list[int]]] = field(default_factory=lambda: {s: [] for s in SIDES})

    def finals(self, side: str) -> npt.NDArray[np.float64]:
        """(seeds,) mean return of the last episodes."""
        return np.array([np.mean(each[-LAST_EPISODES:]) for each in self.returns[side]])


def learn(game: Game, seeds: int, ticks: int) -> Curves:
    """Play every seed with both sides.

    Raises:
        UserError: no episode ended.
    """
    curves, clock = Curves(), MonotonicClock()
    for seed in range(seeds):
        config = load_config(None, [*game.settings, f"run.seed={seed}"], {})
        for side in SIDES:
            began = clock.now()
            run = Offline(config, game.delay, game.updates_per_tick, learner=LEARNERS[side])
            run.run(ticks)
            if not run.returns:
                raise UserError(f"no episode ended within {ticks} ticks: play for longer (--ticks)")
            curves.returns[side].append(run.returns)
            curves.lengths[side].append(run.lengths)
            print(
                f"seed {seed} {side}: {curves.finals(side)[-1]:.2f}, "
                f"{clock.now() - began:.0f} s", file=sys.stderr, flush=True,
            )
    return curves


def interval(finals: npt.NDArray[np.float64]) -> tuple[float, float] | None:
    """The 95 % interval of the mean over seeds, by Student's t; None with a single seed."""
    if len(finals) < 2:
        return None
    mean, half = float(finals.mean()), float(half_interval(finals))
    return mean - half, mean + half


def permutation_p(one: npt.NDArray[np.float64], other: npt.NDArray[np.float64]) -> float:
    """Share of all splits of the seeds whose means are as far apart as those of the true split.

    Of many splits some are drawn, and the true one is among them.
    """
    everything = np.concatenate([one, other])
    if comb(len(everything), len(one)) <= MOST_SPLITS:
        splits = np.array(list(combinations(range(len(everything)), len(one))))
        sums = everything[splits].sum(axis=1)
    else:
        drawn = np.random.default_rng(0).permuted(np.tile(everything, (MOST_SPLITS, 1)), axis=1)
        sums = np.append(one.sum(), drawn[:, : len(one)].sum(axis=1))
    gaps = np.abs(sums / len(one) - (everything.sum() - sums) / len(other))
    return float(np.mean(gaps >= abs(one.mean() - other.mean()) - 1e-9))


def compared(curves: Curves) -> dict[str, Any]:
    """Final returns and intervals of both sides, and whether they are alike; None if unknown."""
    finals = {side: curves.finals(side) for side in SIDES}
    bounds = {side: interval(finals[side]) for side in SIDES}
    p = permutation_p(finals["naive"], finals["ours"])
    known = [each for each in bounds.values() if each is not None]
    overlap = max(low for low, _ in known) <= min(high for _, high in known) if known else None
    enough = min(map(len, finals.values())) >= LEAST_SEEDS
    return {
        **{side: {"finals": finals[side].tolist(), "interval": bounds[side]} for side in SIDES},
        "p": p, "alike": p >= LEAST_P and overlap if enough else None,
    }


def report_learning(games: dict[str, Curves], *, as_json: bool) -> bool:
    """Compare and print the final returns; whether no game is learned differently."""
    report = {name: compared(curves) for name, curves in games.items()}
    if as_json:
        print_json(report)
    else:
        print(f"{'':10}{'':8}{'mean':>8}{'95 % interval':>20}   final return of each seed")
        for name, row in report.items():
            for side in SIDES:
                bounds = row[side]["interval"]
                each = " ".join(f"{value:7.2f}" for value in row[side]["finals"])
                span = "unknown" if bounds is None else f"{bounds[0]:.2f} to {bounds[1]:.2f}"
                print(f"{name:10}{side:8}{np.mean(row[side]['finals']):8.2f}{span:>20}   {each}")
            said = {True: "alike", False: "DIFFERENT", None: "too few seeds to say"}
            print(f"{name:10}p = {row['p']:.2f}: {said[row['alike']]}")
    return all(row["alike"] is not False for row in report.values())


def draw(games: dict[str, Curves], path: Path) -> None:
    """The curves of every seed: mean return of the last episodes over ticks."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6 * len(games), 4))
    panels = figure.subplots(1, len(games), squeeze=False)
    for axes, (name, curves) in zip(panels[0], games.items(), strict=True):
        for side, colour in zip(SIDES, ("tab:orange", "tab:blue"), strict=True):
            pairs = zip(curves.returns[side], curves.lengths[side], strict=True)
            for seed, (returns, lengths) in enumerate(pairs):
                smooth = moving_mean(np.array(returns), LAST_EPISODES)
                label = None if seed else side
                axes.plot(np.cumsum(lengths), smooth, color=colour, alpha=0.6, label=label)
        axes.set(title=name, xlabel="ticks", ylabel=f"mean return of {LAST_EPISODES} episodes")
        axes.grid(alpha=0.3)
        axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
