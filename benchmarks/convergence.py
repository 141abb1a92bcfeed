"""Does learning converge to the same returns in a lower precision? (AP-DRL, Fig. 11, Table III)

Every seed is played in virtual time in every precision, by the learner's own update: master weights
in float32, and in float16 a loss scale. The reward of a run is the mean return of its last
episodes, 100 at most; the reward error is how far the mean of the seeds is from that of float32, in
percent of it. Beside it stands how far chance may take it: the same between random halves of all
runs (95 % of 10,000 splits), for two sets of runs of one precision are not the same either.

    python -m benchmarks.convergence [--games cartpole pendulum] [--seeds 5] [--ticks N]
        [--precisions float32 bfloat16 float16] [--picture FILE] [--json] [--quick]

`--quick`: one game, two seeds, a few thousand ticks: it shows that all runs, and no more than that.
`starfall` takes a quarter of an hour per seed and precision, and hours in float16, for which few
processors have convolutions. InvertedPendulum needs MuJoCo, which is not installed here; a
pendulum of Gymnasium's own takes its place.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.command import command_line
from benchmarks.dqn_update import DaemonUpdate
from benchmarks.offline_learning import Offline
from rtagent.clock import Clock, MonotonicClock
from rtagent.config import LEARNING_PRECISIONS
from rtagent.config_sources import load_config

MOST_ERROR = 5.0
"""Percent."""
LAST_EPISODES = 100
SPLITS = 10_000


@dataclass(frozen=True)
class Game:
    """What is learned.

    Attributes:
        settings: of the configuration.
        ticks: played per run.
        updates_per_tick: the learner's share.
        delay: ticks from a frame to its action's execution.
    """

    settings: list[str]
    ticks: int
    updates_per_tick: float = 1.0
    delay: int = 0


CONTINUOUS = [
    "policy.network=mlp", "policy.width=4", "policy.epsilon_steps=5000", "policy.epsilon_end=0.1",
    "learning.algorithm=ddpg", "learning.batch_size=64", "learning.learning_rate=1e-3",
    "learning.learning_starts=1000", "learning.n_step=1", "replay.capacity=100000",
]
GAMES = {
    # The settings of examples/cartpole.toml, with DQN as in the paper: two layers of 64.
    "cartpole": Game(
        ["env.id=CartPole-v1", "env.default_action=repeat", "policy.network=mlp",
         "policy.exploration_hold_ticks=1", "policy.epsilon_steps=5000", "learning.algorithm=dqn",
         "learning.batch_size=64", "learning.n_step=3", "learning.target_tau=0.005",
         "learning.learning_starts=500", "replay.capacity=50000"],
        ticks=20_000, updates_per_tick=0.5,
    ),
    "pendulum": Game(["env.id=Pendulum-v1", *CONTINUOUS], ticks=15_000),
    "lunar-lander": Game(["env.id=LunarLanderContinuous-v3", *CONTINUOUS], ticks=150_000),
    "mountain-car": Game(["env.id=MountainCarContinuous-v0", *CONTINUOUS], ticks=100_000),
    "starfall": Game(["learning.algorithm=dqn"], ticks=54_000, updates_per_tick=0.33, delay=2),
}


@dataclass
class Runs:
    """Of one game in one precision: returns and lengths of the episodes of each seed."""

    returns: list[list[float]] = field(default_factory=list)
    lengths: list[list[int]] = field(default_factory=list)
    overflows: list[int] = field(default_factory=list)

    @property
    def rewards(self) -> npt.NDArray[np.float64]:
        """(seeds,) the mean return of the last episodes."""
        return np.array([np.mean(each[-LAST_EPISODES:]) for each in self.returns])


class CountingUpdate(DaemonUpdate):
    """The learner's update, which counts gradients that were left out for their loss scale."""

    overflows = 0

    def step(self, batch: Any) -> Any:
        """One update; one that overflows only lowers the loss scale."""
        before = self._shared.state.progress.scale_exponent
        result = super().step(batch)
        self.overflows += self._shared.state.progress.scale_exponent < before
        return result


def learn(
    game: Game, precisions: list[str], seeds: int, ticks: int, clock: Clock
) -> dict[str, Runs]:
    """Play every seed in every precision."""
    found = {each: Runs() for each in precisions}
    for seed in range(seeds):
        for precision, runs in found.items():
            own = [f"run.seed={seed}", f"learning.precision={precision}"]
            # Acting is the same in all: what is compared is learning.
            config = load_config(None, [*game.settings, *own, "policy.precision=float32"], {})
            began = clock.now()
            run = Offline(config, game.delay, game.updates_per_tick, learner=CountingUpdate)
            run.run(ticks, 0, clock)
            runs.returns.append(run.returns)
            runs.lengths.append(run.lengths)
            assert isinstance(run.update, CountingUpdate)
            runs.overflows.append(run.update.overflows)
            print(
                f"seed {seed} {precision}: {runs.rewards[-1]:.2f}, {clock.now() - began:.0f} s",
                file=sys.stderr, flush=True,
            )
    return found


def reward_error(
    full: npt.NDArray[np.float64], low: npt.NDArray[np.float64]
) -> tuple[float, float]:
    """How far the mean of one set of runs is from that of another, and how far chance takes it.

    Returns:
        Both in percent of the mean of the first.
    """
    scale = 100.0 / abs(float(full.mean()))
    everything = np.concatenate([full, low])
    rng = np.random.default_rng(0)
    orders = rng.permuted(np.tile(everything, (SPLITS, 1)), axis=1)
    gaps = orders[:, : len(full)].mean(axis=1) - orders[:, len(full) :].mean(axis=1)
    chance = float(np.percentile(np.abs(gaps), 95))
    return scale * abs(float(low.mean() - full.mean())), scale * chance


def report(games: dict[str, dict[str, Runs]], *, as_json: bool) -> bool:
    """The table; whether all errors are within the bound."""
    rows: list[dict[str, Any]] = []
    for name, found in games.items():
        full = found["float32"].rewards
        for precision, runs in found.items():
            error, chance = reward_error(full, runs.rewards)
            lower = precision != "float32"
            rows.append({
                "game": name, "precision": precision, "rewards": runs.rewards.tolist(),
                "overflows": sum(runs.overflows), "error": error if lower else None,
                "chance": chance if lower else None,
            })
    met = all(row["error"] is None or row["error"] <= MOST_ERROR for row in rows)
    if as_json:
        print(json.dumps({"rows": rows, "target": MOST_ERROR, "met": met}, indent=2))
        return met
    print(f"{'game':13}{'precision':10}{'reward':>9}{'error %':>9}{'chance %':>9}{'overflows':>10}"
          "   reward of each seed")
    for row in rows:
        error, chance = (
            "" if row[key] is None else f"{row[key]:.2f}" for key in ("error", "chance")
        )
        each = " ".join(f"{value:.1f}" for value in row["rewards"])
        print(f"{row['game']:13}{row['precision']:10}{np.mean(row['rewards']):9.2f}{error:>9}"
              f"{chance:>9}{row['overflows']:10d}   {each}")
    print(f"reward error, target {MOST_ERROR:g} %: {'met' if met else 'MISSED'}")
    return met


def draw(games: dict[str, dict[str, Runs]], path: Path) -> None:
    """Mean and standard deviation over the seeds, as in Fig. 11: the last 100 episodes' return."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, len(games), figsize=(6 * len(games), 4), squeeze=False)
    for axes, (name, found) in zip(panels[0], games.items(), strict=True):
        for number, (precision, runs) in enumerate(found.items()):
            ticks = np.linspace(0.0, min(map(sum, runs.lengths)), 200)
            curves = np.array([
                np.interp(ticks, np.cumsum(lengths), moving_mean(returns))
                for returns, lengths in zip(runs.returns, runs.lengths, strict=True)
            ])
            middle, spread, colour = curves.mean(axis=0), curves.std(axis=0), f"C{number}"
            axes.plot(ticks, middle, color=colour, label=precision)
            axes.fill_between(ticks, middle - spread, middle + spread, color=colour, alpha=0.2)
        axes.set(title=name, xlabel="ticks", ylabel=f"mean return of {LAST_EPISODES} episodes")
        axes.grid(alpha=0.3)
        axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def moving_mean(values: list[float]) -> npt.NDArray[np.float64]:
    """Of the last episodes, at each of them: (episodes,)."""
    sums = np.cumsum([0.0, *values])
    ends = np.arange(1, len(sums))
    starts = np.maximum(0, ends - LAST_EPISODES)
    return (sums[ends] - sums[starts]) / (ends - starts)


def main() -> int:
    """Run what was asked for; exit code 1 if an error is too large."""
    parser = command_line(__doc__)
    parser.add_argument("--games", nargs="+", choices=list(GAMES), default=["cartpole", "pendulum"])
    parser.add_argument(
        "--precisions", nargs="+", choices=LEARNING_PRECISIONS, default=list(LEARNING_PRECISIONS)
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--ticks", type=int, help="per run; default: as the game has it")
    parser.add_argument("--picture", type=Path, metavar="FILE")
    parser.add_argument("--quick", action="store_true", help="cartpole, 2 seeds, 3000 ticks")
    options = parser.parse_args()
    if options.quick:
        options.games, options.seeds, options.ticks = ["cartpole"], 2, 3000
    torch.set_num_threads(1)
    precisions = list(dict.fromkeys(["float32", *options.precisions]))
    games: dict[str, dict[str, Runs]] = {}
    for name in options.games:
        print(name, file=sys.stderr)
        ticks = options.ticks or GAMES[name].ticks
        games[name] = learn(GAMES[name], precisions, options.seeds, ticks, MonotonicClock())
        if options.picture:
            draw(games, options.picture)
    met = report(games, as_json=options.json)
    return 0 if options.quick else int(not met)


if __name__ == "__main__":
    sys.exit(main())
