"""Starfall across injected latencies: the return of staggered and of sequential inference.

At each latency the whole daemon plays the built-in game on the wall clock and learns, once with as
many staggered inference processes as the latency needs and once with a single one, everything else
as by default. The figure of a run is the mean return of the episodes that end in its last third,
exploration included. The random policy and the one that does nothing play the same game, offline.
The picture is the counterpart to Fig. 4 of Riemer et al., Realtime Reinforcement Learning. Both
contenders look equally far ahead in seconds: gamma and n-step count ticks.

    python -m benchmarks.latency [--ticks 0.5 2 5 10 20 30] [--minutes 8] [--seeds 0 1 2] [--jobs 2]
        [--picture PATH] [--save PATH] [--resume] [--set SECTION.KEY=VALUE ...] [--json]

The spread is the standard deviation of the returns of doing nothing. It passes if, at every latency
from 5 ticks on, staggered is above sequential and above doing nothing by two spreads, and if
sequential lies within one spread of doing nothing at the largest latency. With two jobs or more,
both contenders of a latency run side by side, so that they share the same machine.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import rtagent
from benchmarks.comparison import (
    COLOURS,
    add_output,
    half_interval,
    save,
    saved_runs,
    settings_of,
    side_by_side,
)
from benchmarks.learning import learn, play
from rtagent.cli.jitter import measure_jitter
from rtagent.errors import UserError

LAST_PART = 1.0 / 3.0
JUDGED_FROM_TICKS = 5.0
STAGGERED_ABOVE = 2.0
"""Spreads."""
SEQUENTIAL_WITHIN = 1.0
"""Spreads; two would reach below the lowest return there is."""


class Planned(NamedTuple):
    """One run: contender, latency in ticks, seed."""

    contender: str
    ticks: float
    seed: int

    @property
    def settings(self) -> list[str]:
        """What differs from the default configuration, as `SECTION.KEY=VALUE`."""
        return [*settings_of(self.contender, self.ticks), f"run.seed={self.seed}"]

    def __str__(self) -> str:
        return f"{self.contender:10} {self.ticks:4g} ticks, seed {self.seed}"


class Baseline(NamedTuple):
    """Mean and standard deviation of the returns of a policy that does not learn."""

    mean: float
    spread: float


class Point(NamedTuple):
    """A contender at a latency: mean over the seeds, half of the 95 % interval (0 for a single
    seed), and inference processes."""

    mean: float
    half: float
    processes: int


def plan(ticks: list[float], seeds: list[int]) -> list[Planned]:
    """All runs; both contenders of a latency are neighbours, and a seed is complete before the
    next begins."""
    return [
        Planned(contender, latency, seed)
        for seed in seeds
        for latency in sorted(set(ticks))
        for contender in COLOURS
    ]


def waves(planned: list[Planned], jobs: int, done: list[dict[str, Any]]) -> list[list[Planned]]:
    """What runs side by side, without what is done.

    The plan is cut first: what is left of it never changes partners.
    """
    known = {planned_of(run) for run in done}
    cut = [planned[start : start + jobs] for start in range(0, len(planned), jobs)]
    left = [[one for one in wave if one not in known] for wave in cut]
    return [wave for wave in left if wave]


def planned_of(run: dict[str, Any]) -> Planned:
    """The plan's entry of a finished run."""
    return Planned(run["contender"], run["ticks"], run["seed"])


def run_one(
    planned: Planned, minutes: float, overrides: list[str], beside: list[str]
) -> dict[str, Any]:
    """Play and learn.

    Args:
        planned: the run.
        minutes: how long.
        overrides: `SECTION.KEY=VALUE`, stronger than the run's own.
        beside: what runs at the same time, to be kept with the figures.
    """
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        config = rtagent.load_config(
            overrides=[*planned.settings, *overrides, f"run.state_dir={folder}"]
        )
        run = learn(config, minutes, f"{planned}: ")
    late = late_returns(run["episodes"], minutes)
    return {
        **planned._asdict(),
        "processes": config.inference.processes,
        "mean_return": float(np.mean(late)),
        "standard_error": float(np.std(late) / math.sqrt(len(late))),
        "episodes_counted": len(late),
        "inaction_fraction": run["inaction_fraction"],
        "updates": run["updates"],
        "beside": beside,
        "took_s": time.monotonic() - begun,
        "episodes": run["episodes"],
    }


def late_returns(episodes: list[tuple[float, float]], minutes: float) -> list[float]:
    """Returns of the episodes that ended in the last third.

    Raises:
        RuntimeError: there are none.
    """
    returns = [value for end, value in episodes if end > 60.0 * minutes * (1.0 - LAST_PART)]
    if not returns:
        raise RuntimeError("no episode ended in the last third: play for longer")
    return returns


def over_seeds(runs: list[dict[str, Any]], contender: str) -> dict[float, Point]:
    """The contender's point at each latency that has a finished run, by latency."""
    points = {}
    own = [run for run in runs if run["contender"] == contender]
    for ticks in sorted({run["ticks"] for run in own}):
        here = [run for run in own if run["ticks"] == ticks]
        means = np.array([run["mean_return"] for run in here])
        half = float(half_interval(means))
        points[ticks] = Point(float(means.mean()), half, here[0]["processes"])
    return points


def verdict(
    runs: list[dict[str, Any]], ticks: list[float], nothing: Baseline
) -> list[tuple[str, bool]]:
    """What is claimed, and whether it holds; a claim without its runs does not."""
    means = {
        name: {latency: point.mean for latency, point in over_seeds(runs, name).items()}
        for name in COLOURS
    }
    bar = nothing.mean + STAGGERED_ABOVE * nothing.spread
    claims = []
    for latency in sorted(latency for latency in set(ticks) if latency >= JUDGED_FROM_TICKS):
        staggered = means["staggered"].get(latency, -math.inf)
        sequential = means["sequential"].get(latency, math.inf)
        claims += [
            (f"{latency:g} ticks: staggered above sequential", staggered > sequential),
            (f"{latency:g} ticks: staggered above {bar:.2f}", staggered > bar),
        ]
    last = max(ticks)
    away = abs(means["sequential"].get(last, math.inf) - nothing.mean)
    claims.append(
        (
            f"{last:g} ticks: sequential within {SEQUENTIAL_WITHIN * nothing.spread:.2f} of "
            f"doing nothing ({nothing.mean:.2f})",
            away <= SEQUENTIAL_WITHIN * nothing.spread,
        )
    )
    return claims


def draw(runs: list[dict[str, Any]], baselines: dict[str, Baseline], path: Path) -> None:
    """Mean return against latency."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.5))
    for contender, colour in COLOURS.items():
        points = over_seeds(runs, contender)
        mean = np.array([point.mean for point in points.values()])
        half = np.array([point.half for point in points.values()])
        axes.plot(list(points), mean, "o-", color=colour, label=contender)
        axes.fill_between(
            list(points), mean - half, mean + half, color=colour, alpha=0.2, linewidth=0
        )
        if contender == "staggered":
            for ticks, point in points.items():
                axes.annotate(
                    str(point.processes), (ticks, point.mean), (0, 7),
                    textcoords="offset points", ha="center", color=colour,
                )
    styles = {"random": ":", "do nothing": "--"}
    for name, baseline in baselines.items():
        axes.axhline(baseline.mean, color="grey", linestyle=styles[name], label=name)
    shown = sorted({run["ticks"] for run in runs})
    axes.set_xscale("log")
    axes.set_xticks(shown, [f"{ticks:g}" for ticks in shown])
    axes.minorticks_off()
    axes.set(xlabel="injected latency in ticks", ylabel="mean return, last third of the run")
    axes.set_title("Starfall at 59.7275 Hz; numbers: staggered inference processes")
    axes.legend()
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def table(runs: list[dict[str, Any]]) -> str:
    """One line for each finished run, by latency."""
    lines = [
        f"{'ticks':>5}  {'contender':10}  {'seed':>4}  {'processes':>9}  {'mean return':>14}  "
        f"{'episodes':>8}  {'inaction':>8}  {'updates':>7}"
    ]
    lines += [
        f"{run['ticks']:5g}  {run['contender']:10}  {run['seed']:4d}  {run['processes']:9d}  "
        f"{run['mean_return']:6.2f} +- {run['standard_error']:4.2f}  "
        f"{run['episodes_counted']:8d}  {100 * run['inaction_fraction']:6.1f} %  "
        f"{run['updates']:7d}"
        for run in sorted(runs, key=lambda run: (run["ticks"], run["seed"], run["contender"]))
    ]
    return "\n".join(lines)


def measure(args: argparse.Namespace, runs: list[dict[str, Any]], keep: Callable[[], None]) -> None:
    """Go through what is left of the plan; a run that fails is told, and the others go on.

    Args:
        args: of the command line.
        runs: the finished ones, to which every further one is added.
        keep: called after each.
    """
    for wave in waves(plan(args.ticks, args.seeds), args.jobs, runs):
        # One wave after the other: what shares a latency begins together.
        calls = {
            str(planned): partial(
                run_one, planned, args.minutes, args.overrides,
                [str(other) for other in wave if other != planned],
            )
            for planned in wave
        }
        for run in side_by_side(calls):
            runs.append(run)
            keep()


def arguments() -> argparse.Namespace:
    """Parsed and checked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ticks", type=float, nargs="+", default=[0.5, 2, 5, 10, 20, 30])
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--jobs", type=int, default=2, help="runs side by side: 1, or even")
    add_output(parser)
    parser.add_argument("--set", action="append", default=[], dest="overrides")
    args = parser.parse_args()
    if min(args.ticks) <= 0.0 or args.minutes <= 0.0:
        parser.error("--ticks and --minutes must be positive")
    if args.jobs != 1 and (args.jobs < 1 or args.jobs % 2):
        parser.error("--jobs must be 1 or even: both contenders of a latency run side by side")
    return args


def main() -> int:
    """Run what is left; exit code 1 if a claim does not hold."""
    args = arguments()
    conditions = {"minutes": args.minutes, "overrides": args.overrides}
    try:
        runs = saved_runs(args, conditions)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"machine floor (bare loop): {measure_jitter(3.0)}", file=sys.stderr)
    base = rtagent.load_config(overrides=args.overrides)
    returns = {
        "random": play(base, lambda rng, actions: int(rng.integers(actions))),
        "do nothing": play(base, lambda rng, actions: 0),
    }
    baselines = {
        name: Baseline(float(np.mean(own)), float(np.std(own))) for name, own in returns.items()
    }
    for name, baseline in baselines.items():
        print(f"{name:10}  mean {baseline.mean:.2f}  sd {baseline.spread:.2f}", file=sys.stderr)
    record = {**conditions, "baselines": returns, "runs": runs}

    def keep() -> None:
        save(args.save, record)
        if args.picture:
            draw(runs, baselines, args.picture)

    measure(args, runs, keep)
    keep()
    claims = verdict(runs, args.ticks, baselines["do nothing"])
    print(table(runs), file=sys.stderr)
    for claim, holds in claims:
        print(f"{claim}: {'ok' if holds else 'MISSED'}", file=sys.stderr)
    passed = all(holds for _, holds in claims)
    if args.json:
        print(json.dumps({**record, "passed": passed}))
    return int(not passed)


if __name__ == "__main__":
    sys.exit(main())
