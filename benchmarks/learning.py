"""Learning in real time: the default configuration for 15 minutes, beside two policies that do not
learn.

For each seed the whole daemon plays the built-in game on the wall clock and learns; the returns of
its episodes are read from its process metrics. The random policy (a new action on every tick) and
the policy that does nothing play the same game, offline, for some hundred episodes. A picture shows
the curves.

    python -m benchmarks.learning [--minutes M] [--seeds S ...] [--picture PATH] [--save PATH]
        [--resume] [--set SECTION.KEY=VALUE ...] [--json]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import rtagent
from benchmarks.comparison import add_output, save, saved_runs
from rtagent.config import Config
from rtagent.env.adapter import open_environment
from rtagent.errors import UserError

LAST_EPISODES = 20
BASELINE_EPISODES = 200


def learn(config: Config, minutes: float, label: str | None = None) -> dict[str, Any]:
    """Run the daemon and collect every episode: end (s), return.

    Args:
        config: of the run.
        minutes: how long.
        label: put before the line of progress, which is then printed once a minute on a line of
            its own: several runs may go side by side.
    """
    episodes: list[tuple[float, float]] = []
    every_s, begins, ends = (60.0, label, "\n") if label else (10.0, "\r", "")
    with rtagent.Runtime(config) as runtime:
        runtime.wait_ready(60)
        start, end = time.monotonic(), time.monotonic() + 60.0 * minutes
        while time.monotonic() < end:
            time.sleep(min(every_s, max(0.0, end - time.monotonic())))
            world = runtime.world
            recent = world.metrics.environment.episodes.newest(1000)
            episodes = timed(recent, world.first_tick, world.blueprint.tick_seconds)
            learning = runtime.stats()["learning"]
            last = [value for _, value in episodes[-LAST_EPISODES:]]
            print(
                f"{begins}{(time.monotonic() - start) / 60:5.1f} min  "
                f"{len(episodes)} episodes  "
                f"last {LAST_EPISODES}: {np.mean(last) if last else float('nan'):6.2f}  "
                f"{learning['updates']} updates  epsilon {learning['epsilon']:.2f}   ",
                end=ends, file=sys.stderr, flush=True,
            )
        stats = runtime.stats()
    if not label:
        print(file=sys.stderr)
    last = [value for _, value in episodes[-LAST_EPISODES:]]
    return {
        "seed": config.run.seed,
        "episodes": episodes,
        "mean_return_last_20": float(np.mean(last)),
        "updates": stats["learning"]["updates"],
        "inaction_fraction": stats["actions"]["inaction_fraction"],
        "ticks": stats["clock"]["ticks"],
        "decisions": stats["actions"]["agent"],
    }


def timed(
    recent: NDArray[np.void], first_tick: int, tick_seconds: float
) -> list[tuple[float, float]]:
    """End and return of each episode, in seconds since the world began.

    Args:
        recent: as the environment's record gives them.
        first_tick: of the run; one that begins with ticks in its replay counts on from them.
        tick_seconds: length of a tick.
    """
    seconds = (recent["end_tick"] - first_tick) * tick_seconds
    return list(zip(seconds.tolist(), recent["return"].tolist(), strict=True))


def play(config: Config, choose: Callable[[np.random.Generator, int], int]) -> list[float]:
    """Returns of a policy that does not look, tick by tick, offline."""
    adapter = open_environment(config.env)
    rng = np.random.default_rng(config.run.seed)
    actions = int(adapter.action_space.n)  # type: ignore[attr-defined]
    returns = []
    for episode in range(BASELINE_EPISODES):
        adapter.reset(config.run.seed if episode == 0 else None)
        total, over = 0.0, False
        while not over:
            step = adapter.step(choose(rng, actions))
            total += step.reward
            over = step.terminated or step.truncated
        returns.append(total)
    adapter.close()
    return returns


def draw(
    runs: list[dict[str, Any]], baselines: dict[str, list[float]], path: Path,
    title: str = "Starfall at 59.7275 Hz, default configuration, two cores",
) -> None:
    """The learning curves: mean return of the last 20 episodes over time."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4.5))
    for run in runs:
        seconds = np.array([second for second, _ in run["episodes"]]) / 60.0
        returns = np.array([value for _, value in run["episodes"]])
        ends = range(1, len(returns) + 1)
        smooth = [returns[max(0, end - LAST_EPISODES) : end].mean() for end in ends]
        axes.plot(seconds, smooth, label=f"seed {run['seed']}")
    styles = {"random": ":", "do nothing": "--"}
    for name, returns_of in baselines.items():
        axes.axhline(float(np.mean(returns_of)), color="grey", linestyle=styles[name], label=name)
    axes.set(xlabel="minutes of wall-clock time", ylabel=f"mean return of {LAST_EPISODES} episodes")
    axes.set_title(title)
    axes.legend()
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def main() -> int:
    """Run all seeds; exit code 1 if one does not clearly beat both baselines."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    add_output(parser)
    parser.add_argument("--set", action="append", default=[], dest="overrides")
    args = parser.parse_args()
    conditions = {"minutes": args.minutes, "overrides": args.overrides}
    try:
        runs = saved_runs(args, conditions)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    base = rtagent.load_config(overrides=args.overrides)
    baselines = {
        "random": play(base, lambda rng, actions: int(rng.integers(actions))),
        "do nothing": play(base, lambda rng, actions: 0),
    }
    for name, returns in baselines.items():
        print(f"{name:10}  mean {np.mean(returns):6.2f}  sd {np.std(returns):.2f}", file=sys.stderr)
    record = {**conditions, "baselines": baselines, "runs": runs}
    for seed in args.seeds:
        if any(run["seed"] == seed for run in runs):
            continue
        with tempfile.TemporaryDirectory() as folder:
            config = rtagent.load_config(
                overrides=[*args.overrides, f"run.seed={seed}", f"run.state_dir={folder}"]
            )
            run = learn(config, args.minutes)
        runs.append(run)
        print(
            f"seed {seed}: last {LAST_EPISODES} episodes {run['mean_return_last_20']:.2f}, "
            f"{len(run['episodes'])} episodes, {run['updates']} updates, "
            f"inaction {100 * run['inaction_fraction']:.3f} %",
            file=sys.stderr,
        )
        save(args.save, record)
        if args.picture:
            draw(runs, baselines, args.picture)
    # Clearly: above the best baseline by twice its spread.
    bars = [float(np.mean(returns) + 2 * np.std(returns)) for returns in baselines.values()]
    passed = all(run["mean_return_last_20"] > max(bars) for run in runs)
    print(f"bar {max(bars):.2f}: {'ok' if passed else 'MISSED'}", file=sys.stderr)
    if args.json:
        print(json.dumps({**record, "passed": passed}))
    return int(not passed)


if __name__ == "__main__":
    sys.exit(main())
