"""CartPole at 200 Hz of wall-clock time: one inference process, one learner, seeds one by one.

`examples/cartpole.toml` is what runs. The world does not wait: an action is executed one or two
ticks after the frame that it was computed from, and the learner has what acting leaves of the
machine.

    python -m benchmarks.cartpole --seconds 150 --seeds 0 1 2 3 4
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from rtagent import Runtime, load_config
from rtagent.memory.board import EPISODES, recent_episodes

EXAMPLE = Path(__file__).parents[1] / "examples" / "cartpole.toml"
LAST = 20
TARGET = 150.0
SEEDS_THAT_MUST = 0.8


def play(seed: int, seconds: float, settings: list[str], tick: Any) -> dict[str, Any]:
    """One run from nothing; its episodes and figures."""
    with tempfile.TemporaryDirectory() as folder:
        own = [f"run.state_dir={folder}", f"run.seed={seed}", "run.tensorboard=false"]
        with Runtime(load_config(EXAMPLE, [*own, *settings], {})) as runtime:
            runtime.wait_ready(60)
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                time.sleep(0.5)
                tick(0.5)
            stats = runtime.stats()
            episodes = recent_episodes(runtime.world.board.environment, EPISODES)
    returns = [float(each) for each in episodes["return"]]
    return {
        "seed": seed,
        "episodes": stats["episodes"]["count"],
        "last": float(np.mean(returns[-LAST:])),
        "best": max(returns),
        "updates": stats["learning"]["updates"],
        "inaction": stats["actions"]["inaction_fraction"],
        "delay": stats["actions"]["delay_ticks"]["mean"],
        "rate_hz": stats["clock"]["rate_hz"],
        "returns": returns,
    }


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=150.0)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    console = Console(stderr=True)
    runs = []
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task("playing", total=options.seconds * len(options.seeds))
        for seed in options.seeds:
            run = play(
                seed, options.seconds, options.set, lambda s: progress.update(bar, advance=s)
            )
            runs.append(run)
            progress.console.print(f"seed {seed}: last {LAST} episodes {run['last']:.1f}")
    if options.json:
        print(json.dumps(runs))
        return
    table = Table("seed", "episodes", f"mean of last {LAST}", "best", "updates", "inaction",
                  "delay, ticks", "Hz")
    for run in runs:
        table.add_row(
            str(run["seed"]), str(run["episodes"]), f"{run['last']:.1f}", f"{run['best']:.0f}",
            f"{run['updates']:,}", f"{100 * run['inaction']:.2f} %", f"{run['delay']:.2f}",
            f"{run['rate_hz']:.2f}",
        )
    Console().print(table)
    good = sum(run["last"] >= TARGET for run in runs)
    verdict = "holds" if good >= SEEDS_THAT_MUST * len(runs) else "missed"
    print(f"{good} of {len(runs)} seeds reach {TARGET:g}; 4 of 5 must: {verdict}")


if __name__ == "__main__":
    main()
