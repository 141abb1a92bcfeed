"""CartPole at 200 Hz of wall-clock time, or Pendulum: one inference process, one learner.

`examples/cartpole.toml` or `examples/pendulum.toml` is what runs, seed after seed. The world does
not wait: an action is executed one or two ticks after the frame that it was computed from, and the
learner has what acting leaves of the machine.

    python -m benchmarks.cartpole [--example cartpole|pendulum] [--seconds 150] [--seeds 0 1 2 3 4]
        [--picture PATH] [--save PATH] [--resume] [--set SECTION.KEY=VALUE ...] [--json]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.comparison import add_output, save, saved_runs
from benchmarks.learning import draw, timed
from rtagent import Runtime, load_config
from rtagent.errors import UserError
from rtagent.memory.process_metrics import EPISODES

EXAMPLES = Path(__file__).parents[1] / "examples"
LAST = 20
TARGETS = {"cartpole": 150.0, "pendulum": -400.0}
"""Mean return of the last episodes. At random, a pole stands 22 ticks, a pendulum costs 1200."""
SEEDS_THAT_MUST = 0.8


def play(example: str, seed: int, seconds: float, settings: list[str], tick: Any) -> dict[str, Any]:
    """One run from nothing; its episodes and figures."""
    with tempfile.TemporaryDirectory() as folder:
        own = [f"run.state_dir={folder}", f"run.seed={seed}", "run.tensorboard=false"]
        with Runtime(load_config(EXAMPLES / f"{example}.toml", [*own, *settings], {})) as runtime:
            runtime.wait_ready(60)
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                time.sleep(0.5)
                tick(0.5)
            stats, world = runtime.stats(), runtime.world
            recent = world.metrics.environment.episodes.newest(EPISODES)
            episodes = timed(recent, world.first_tick, world.blueprint.tick_seconds)
    returns = [value for _, value in episodes]
    return {
        "seed": seed,
        "episodes": episodes,
        "count": stats["episodes"]["count"],
        "last": float(np.mean(returns[-LAST:])),
        "best": max(returns),
        "updates": stats["learning"]["updates"],
        "inaction": stats["actions"]["inaction_fraction"],
        "delay": stats["actions"]["delay_ticks"]["mean"],
        "rate_hz": stats["clock"]["rate_hz"],
    }


def show(runs: list[dict[str, Any]], target: float) -> None:
    """Print a row for each seed, and whether enough of them reach the target."""
    table = Table("seed", "episodes", f"mean of last {LAST}", "best", "updates", "inaction",
                  "delay, ticks", "Hz")
    for run in runs:
        table.add_row(
            str(run["seed"]), str(run["count"]), f"{run['last']:.1f}", f"{run['best']:.0f}",
            f"{run['updates']:,}", f"{100 * run['inaction']:.2f} %", f"{run['delay']:.2f}",
            f"{run['rate_hz']:.2f}",
        )
    Console().print(table)
    good = sum(run["last"] >= target for run in runs)
    verdict = "holds" if good >= SEEDS_THAT_MUST * len(runs) else "missed"
    print(f"{good} of {len(runs)} seeds reach {target:g}; 4 of 5 must: {verdict}")


def main() -> int:
    """Parse the command line and run what is left of the seeds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--example", choices=list(TARGETS), default="cartpole")
    parser.add_argument("--seconds", type=float, default=150.0)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    add_output(parser)
    args = parser.parse_args()
    conditions = {"example": args.example, "seconds": args.seconds, "overrides": args.set}
    try:
        runs = saved_runs(args, conditions)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    left = [seed for seed in args.seeds if all(run["seed"] != seed for run in runs)]
    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("playing", total=args.seconds * len(left))
        for seed in left:
            run = play(
                args.example, seed, args.seconds, args.set,
                lambda s: progress.update(bar, advance=s),
            )
            runs.append(run)
            progress.console.print(f"seed {seed}: last {LAST} episodes {run['last']:.1f}")
            save(args.save, {**conditions, "runs": runs})
            if args.picture:
                draw(runs, {}, args.picture, f"examples/{args.example}.toml, {args.seconds:g} s")
    if args.json:
        print(json.dumps({**conditions, "runs": runs}))
    else:
        show(runs, TARGETS[args.example])
    return 0


if __name__ == "__main__":
    sys.exit(main())
