"""One DQN update against a plain textbook implementation: as fast as it should be, and no worse?

Ours is a learner's whole update as the daemon does it, on the shared state with its two copies: it
takes bytes, computes in the precision that is measured to be the fastest here, with convolutions
laid out channels last and Adam in one kernel, and keeps its memory. The naive one takes ready
float32 observations in torch's usual layout, its Adam goes through the parameters one by one, and
malloc is as it is. Each side has a process of its own, for malloc's sake; rounds of both alternate,
so that both see the same machine, and times are the processor's.

    python -m benchmarks.dqn_update [--rounds 12] [--precision auto] [--json]
    python -m benchmarks.dqn_update --learning [--games cartpole starfall] [--seeds 5]
        [--ticks N] [--picture FILE] [--json]

The second call compares learning curves instead, game by game, in virtual time: the final returns
(mean of the last 20 episodes) of the seeds of both sides, with the interval of their mean
(bootstrap, 95 %) and a permutation test. `starfall` takes about a quarter of an hour per seed.
"""

from __future__ import annotations

import copy
import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import combinations
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.command import command_line
from benchmarks.local_update import UpdateResult
from benchmarks.offline_learning import Offline, Update
from rtagent.clock import MonotonicClock
from rtagent.config import LEARNING_PRECISIONS, LearningConfig, PolicyConfig
from rtagent.config_sources import load_config
from rtagent.learning.replay.batch import Batch
from rtagent.learning.shared_update import SharedUpdate
from rtagent.policy import networks
from rtagent.processes.freed_memory import keep_freed_memory

UPDATES_PER_ROUND = 8
LAST_EPISODES = 20
LEAST_P = 0.05
RESAMPLES = 10_000
CASES = {
    "resnet k=1, B=16": ("resnet", 16, 3.0), "resnet k=1, B=64": ("resnet", 64, 3.3),
    "nature, B=32": ("nature", 32, 0.0),
}
"""Network, batch size, and how many times as fast ours should be."""
SIDES = ("naive", "ours")


# ---- the naive implementation


class NaiveUpdate:
    """DQN as one writes it down: float32, torch's defaults, a loop over the parameters.

    Args:
        network: one of the built-in networks; its own treatment of observations is taken out.
        learning: step size, clipping, period of the target network.
        foreach: whether Adam and clipping take many parameters at once. If None, torch chooses.
    """

    def __init__(
        self, network: nn.Module, learning: LearningConfig, foreach: bool | None = False
    ) -> None:
        self.network = network.to(memory_format=torch.contiguous_format)
        self.network._prepare = lambda observations, weight: observations
        self.target = copy.deepcopy(self.network).requires_grad_(False)
        self.updates = 0
        self._learning, self._foreach = learning, foreach
        self._optimizer = torch.optim.Adam(
            self.network.parameters(), lr=learning.learning_rate, foreach=foreach, fused=foreach
        )

    def step(self, batch: Batch) -> UpdateResult:
        """One gradient step."""
        batch = as_floats(batch)
        with torch.no_grad():
            best = self.target(batch.next_observations).max(dim=1).values
            targets = batch.rewards + batch.discounts * best * ~batch.terminals
        values = self.network(batch.observations).gather(1, batch.actions[:, None])[:, 0]
        loss = functional.smooth_l1_loss(values, targets)
        self._optimizer.zero_grad()
        loss.backward()
        limit = self._learning.gradient_clip or float("inf")
        norm = nn.utils.clip_grad_norm_(self.network.parameters(), limit, foreach=self._foreach)
        self._optimizer.step()
        self.updates += 1
        if self.updates % self._learning.target_period == 0:
            self.target.load_state_dict(self.network.state_dict())
        return UpdateResult(float(loss.detach()), float(norm), True, (targets - values).detach())


class DaemonUpdate:
    """An update as a learner of the daemon does it: read, compute, apply to the shared state.

    Args:
        network: as `ValueLearning` takes it.
        learning: algorithm, step size, clipping, how the target network follows.
    """

    def __init__(self, network: nn.Module, learning: LearningConfig) -> None:
        self._shared = SharedUpdate.private(network, learning)
        self.network = self._shared.algorithm.network
        self._shared.refresh()

    def choose_precision(self, batch_of: Callable[[int], Batch], count: int) -> str:
        """Compute in the precision that is the fastest here, as a learner does; its name."""
        measured = self._shared.measure_precisions(batch_of, count, lambda: None)
        self._shared.algorithm.precision = measured.chosen
        return measured.chosen

    @property
    def updates(self) -> int:
        """Steps applied so far."""
        return self._shared.state.progress.updates

    def step(self, batch: Batch) -> UpdateResult:
        """One update; afterwards the network holds the new weights."""
        gradient = self._shared.compute(batch, self.updates)
        if gradient.finite:
            self._shared.apply(gradient)
            self._shared.refresh()
        elif gradient.overflowed:
            self._shared.lower_scale(gradient)
            self._shared.refresh()
        return UpdateResult(gradient.loss, gradient.norm, gradient.finite, gradient.errors)


def as_floats(batch: Batch) -> Batch:
    """The batch with float32 observations; pixels in [0, 1]."""

    def convert(observations: Tensor) -> Tensor:
        is_pixels = observations.dtype == torch.uint8
        return observations.float() / 255.0 if is_pixels else observations

    return replace(
        batch,
        observations=convert(batch.observations),
        next_observations=convert(batch.next_observations),
    )


LEARNERS: dict[str, Callable[[nn.Module, LearningConfig], Update]] = {
    "naive": NaiveUpdate,
    "ours": DaemonUpdate,
}


# ---- speed


def random_batch(count: int) -> Batch:
    """Pixels of noise, which take as long as any others."""
    rng = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (2, count, 4, 84, 84), dtype=torch.uint8, generator=rng)
    return Batch(
        observations=pixels[0],
        actions=torch.randint(0, 6, (count,), generator=rng),
        rewards=torch.randn(count, generator=rng),
        discounts=torch.full((count,), 0.99),
        next_observations=pixels[1],
        terminals=torch.zeros(count, dtype=torch.bool),
        weights=torch.ones(count),
    )


@dataclass(frozen=True)
class Side:
    """What a process of its own measures, round by round.

    Attributes:
        step: one update.
        precision: that it computes in.
    """

    step: Callable[[], object]
    precision: str


_measured: list[Side] = []
"""Of this process; set once, before the first round."""


def _prepare(side: str, name: Any, count: int, precision: Any) -> None:
    """In a side's process: make what is measured."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    space, batch = spaces.Box(0, 255, (4, 84, 84), np.uint8), random_batch(count)
    network = networks.build(PolicyConfig(network=name), space, spaces.Discrete(6))
    learning = LearningConfig(batch_size=count, precision=precision)
    if side == "naive":
        # Its replay holds floats: what converting bytes costs is not counted against it.
        naive, floats = NaiveUpdate(network, learning), as_floats(batch)
        _measured.append(Side(lambda: naive.step(floats), "float32"))
        return
    keep_freed_memory()
    ours = DaemonUpdate(network, learning)
    chosen = ours.choose_precision(random_batch, count) if precision == "auto" else precision
    _measured.append(Side(lambda: ours.step(batch), chosen))


def _precision() -> str:
    """In a side's process: what it computes in."""
    return _measured[0].precision


def _time_round() -> float:
    """In a side's process: milliseconds of the processor for one update, median of some."""
    spans = []
    for _ in range(UPDATES_PER_ROUND):
        began = time.process_time()
        _measured[0].step()
        spans.append(1e3 * (time.process_time() - began))
    return float(np.median(spans))


def time_updates(
    name: str, count: int, rounds: int, precision: str
) -> tuple[dict[str, npt.NDArray[np.float64]], str]:
    """Time both sides.

    Returns:
        Milliseconds of one update of each side, median of each round: (rounds,); and the precision
        of ours.
    """
    spent: dict[str, list[float]] = {side: [] for side in SIDES}
    with ExitStack() as stack:
        workers = {
            side: stack.enter_context(ProcessPoolExecutor(
                1, get_context("spawn"), _prepare, (side, name, count, precision)
            ))
            for side in SIDES
        }
        chosen = workers["ours"].submit(_precision).result()
        for turn in range(rounds + 1):
            for side, worker in workers.items():
                milliseconds = worker.submit(_time_round).result()
                if turn:  # The first round warms up.
                    spent[side].append(milliseconds)
    return {side: np.array(values) for side, values in spent.items()}, chosen


def report_speed(rounds: int, precision: str, *, as_json: bool) -> bool:
    """Time every case; whether the targets are met."""
    report: dict[str, dict[str, Any]] = {}
    for case, (name, count, target) in CASES.items():
        spent, chosen = time_updates(name, count, rounds, precision)
        ratios = spent["naive"] / spent["ours"]
        low, high = np.percentile(ratios, [10, 90])
        ratio = float(np.median(ratios))
        report[case] = {
            **{f"{side}_ms": float(np.median(spent[side])) for side in SIDES},
            **{f"{side}_noise": noise(spent[side]) for side in SIDES},
            "ratio": ratio, "ratio_p10": float(low), "ratio_p90": float(high),
            "precision": chosen, "target": target, "met": ratio >= target,
        }
    met = all(row["met"] for row in report.values())
    if as_json:
        print(json.dumps({"cases": report, "met": met}, indent=2))
        return met
    print(f"{'milliseconds per update':26}{'naive':>14}{'ours':>14}{'ratio':>8}   10 to 90 %")
    for case, row in report.items():
        cells = "".join(
            f"{row[f'{side}_ms']:8.1f} ±{100 * row[f'{side}_noise']:2.0f} %" for side in SIDES
        )
        verdict = "met" if row["met"] else "MISSED"
        said = f"   target {row['target']:g}: {verdict}" if row["target"] else ""
        print(f"{case:28}{cells}{row['ratio']:8.2f}   {row['ratio_p10']:.2f} to "
              f"{row['ratio_p90']:.2f}   {row['precision']}{said}")
    return met


def noise(values: npt.NDArray[np.float64]) -> float:
    """Half the distance of the 10th and 90th percentile, as a share of the median."""
    low, middle, high = np.percentile(values, [10, 50, 90])
    return float((high - low) / 2 / middle)


# ---- learning curves


@dataclass(frozen=True)
class Game:
    """What both sides learn.

    Attributes:
        settings: of the configuration.
        ticks: played per seed.
        delay: ticks from a frame to its action's execution.
        updates_per_tick: the learner's share.
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
    """Play every seed with both sides."""
    curves, clock = Curves(), MonotonicClock()
    for seed in range(seeds):
        config = load_config(None, [*game.settings, f"run.seed={seed}"], {})
        for side in SIDES:
            began = clock.now()
            run = Offline(
                config, game.delay, game.updates_per_tick, learner=LEARNERS[side]
            )
            run.run(ticks, 0, clock)
            curves.returns[side].append(run.returns)
            curves.lengths[side].append(run.lengths)
            print(
                f"seed {seed} {side}: {curves.finals(side)[-1]:.2f}, "
                f"{clock.now() - began:.0f} s", file=sys.stderr, flush=True,
            )
    return curves


def interval(finals: npt.NDArray[np.float64], rng: np.random.Generator) -> tuple[float, float]:
    """The 95 % interval of the mean over seeds, by bootstrap."""
    means = rng.choice(finals, (RESAMPLES, len(finals))).mean(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)


def permutation_p(one: npt.NDArray[np.float64], other: npt.NDArray[np.float64]) -> float:
    """How often a random split of all seeds has means as far apart as the true one."""
    everything = np.concatenate([one, other])
    splits = np.array(list(combinations(range(len(everything)), len(one))))
    sums = everything[splits].sum(axis=1)
    gaps = np.abs(sums / len(one) - (everything.sum() - sums) / len(other))
    return float(np.mean(gaps >= abs(one.mean() - other.mean()) - 1e-9))


def report_learning(games: dict[str, Curves], *, as_json: bool) -> bool:
    """Compare the final returns; whether they are alike on every game."""
    report: dict[str, Any] = {}
    for name, curves in games.items():
        rng = np.random.default_rng(0)
        finals = {side: curves.finals(side) for side in SIDES}
        bounds = {side: interval(finals[side], rng) for side in SIDES}
        p = permutation_p(finals["naive"], finals["ours"])
        overlap = (
            max(low for low, _ in bounds.values()) <= min(high for _, high in bounds.values())
        )
        report[name] = {
            **{side: {"finals": finals[side].tolist(), "interval": bounds[side]} for side in SIDES},
            "p": p, "alike": p >= LEAST_P and overlap,
        }
    if as_json:
        print(json.dumps(report, indent=2))
    else:
        print(f"{'':10}{'':8}{'mean':>8}{'95 % interval':>20}   final return of each seed")
        for name, row in report.items():
            for side in SIDES:
                low, high = row[side]["interval"]
                each = " ".join(f"{value:7.2f}" for value in row[side]["finals"])
                mean, span = np.mean(row[side]["finals"]), f"{low:.2f} to {high:.2f}"
                print(f"{name:10}{side:8}{mean:8.2f}{span:>20}   {each}")
            print(f"{name:10}p = {row['p']:.2f}: {'alike' if row['alike'] else 'DIFFERENT'}")
    return all(row["alike"] for row in report.values())


def draw(games: dict[str, Curves], path: Path) -> None:
    """The curves of every seed: mean return of the last episodes over ticks."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, len(games), figsize=(6 * len(games), 4), squeeze=False)
    for axes, (name, curves) in zip(panels[0], games.items(), strict=True):
        for side, colour in zip(SIDES, ("tab:orange", "tab:blue"), strict=True):
            pairs = zip(curves.returns[side], curves.lengths[side], strict=True)
            for seed, (returns, lengths) in enumerate(pairs):
                starts = (max(0, end - LAST_EPISODES) for end in range(1, len(returns) + 1))
                smooth = [np.mean(returns[s : e + 1]) for e, s in enumerate(starts)]
                label = None if seed else side
                axes.plot(np.cumsum(lengths), smooth, color=colour, alpha=0.6, label=label)
        axes.set(title=name, xlabel="ticks", ylabel=f"mean return of {LAST_EPISODES} episodes")
        axes.grid(alpha=0.3)
        axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> int:
    """Run what was asked for; exit code 1 if it is not as it should be."""
    parser = command_line(__doc__)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--precision", choices=["auto", *LEARNING_PRECISIONS], default="auto")
    parser.add_argument("--learning", action="store_true", help="compare learning curves instead")
    parser.add_argument("--games", nargs="+", choices=list(GAMES), default=list(GAMES))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--ticks", type=int, help="per seed; default: as the game has it")
    parser.add_argument("--picture", type=Path, metavar="FILE")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if not options.learning:
        return int(not report_speed(options.rounds, options.precision, as_json=options.json))
    games = {}
    for name in options.games:
        print(name, file=sys.stderr)
        games[name] = learn(GAMES[name], options.seeds, options.ticks or GAMES[name].ticks)
        if options.picture:
            draw(games, options.picture)
    return int(not report_learning(games, as_json=options.json))


if __name__ == "__main__":
    sys.exit(main())
