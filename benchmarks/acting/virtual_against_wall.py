"""A run in virtual time beside the same run on the wall clock: inaction, delay, return, updates.

CartPole at 25 Hz. First a policy is trained in virtual time. It plays, greedily, by two staggered
processes with an inference time of 1.1 ticks; then one is learned from random weights by sequential
interaction with an inference time of 1.6 ticks, where updates cost actions. Each is done once on
the wall clock by the whole daemon and once in virtual time, as long and with the same settings; an
update takes in virtual time what it took on the wall clock at the median. The figures of both sides
are counted by the same function from the rows of their ledgers, after a warm-up.

    rtagent bench virtual_against_wall [--seconds S] [--seed N] [--json]

It passes if, playing, the shares of inaction differ by 0.05 at most, the delay histograms by 0.1
(total variation: the share of actions whose delay would have to change), and the mean returns by
25 %; and if, learning, inaction and delays do so, and the numbers of updates differ by 10 %.
Returns while learning are shown: they differ from seed to seed on one side alone.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import rtagent
from benchmarks.command import Result, at_least, command_line, from_zero, report
from rtagent import virtual
from rtagent.cli.jitter import measure_jitter
from rtagent.clock import NANO
from rtagent.config import Config
from rtagent.evaluation.trained_policy import FOLDER, playing
from rtagent.storage.checkpoint import newest
from rtagent.virtual.result import figures_since

WARM_UP_S = 5.0
LEAST_S = 30.0
"""By then updates are made (from 10 s on), and an episode, of at most 20 s, has ended after the
warm-up."""
LOOK_S = 0.2
"""Seconds between two readings of the time of the last update."""
TRAINED_S = 200.0
UPDATE_S = 0.005
"""Time of an update while the policy is trained that is played later."""
BOUNDS = {"inaction": 0.05, "delays": 0.10, "return": 0.25, "updates": 0.10}
"""Largest accepted differences; those of returns and updates are relative to the wall clock."""
JUDGED = {
    "playing": ("inaction", "delays", "return"), "learning": ("inaction", "delays", "updates"),
}
"""The differences that a run is judged by."""
SETTINGS = (
    "env.id=CartPole-v1", "env.rate_hz=25", "inference.processes=2",
    "inference.injected_latency_ms=44", "inference.injected_latency_distribution=gauss",
    "inference.injected_latency_spread=0.1", "learning.learning_starts=250",
    "learning.updates_per_tick=1", "learning.precision=float32", "learning.n_step=1",
    "policy.epsilon_steps=2000", "replay.capacity=50000", "run.tensorboard=false",
    "run.checkpoint_every_s=3600",
)
BY_TURNS = (
    "inference.algorithm=sequential-infer-learn", "inference.processes=1",
    "inference.injected_latency_ms=64",
)


def on_the_wall_clock(config: Config, seconds: float) -> dict[str, Any]:
    """Figures of a live run, from its first tick on; without updates their time is None."""
    with rtagent.Runtime(config) as runtime:
        runtime.wait_ready(60)
        world = runtime.world
        learner, update_ns = world.metrics.learners[0], []
        # As long as the simulated one, which begins with its first tick, too.
        end = world.metrics.environment.first_due_ns / NANO + seconds
        while (left := end - time.monotonic()) > 0.0:
            time.sleep(min(LOOK_S, left))
            if learner.updates:
                update_ns.append(learner.update_ns)
        rows = world.ledger.read(0, world.ledger.newest + 1)
        updates = learner.updates
        update_s = float(np.median(update_ns)) / NANO if update_ns else None
    rows["time_ns"] -= rows["time_ns"][0]
    return {**figures_since(rows, WARM_UP_S), "updates": updates, "update_s": update_s}


def compared(name: str, wall: dict[str, Any], simulated: dict[str, Any]) -> dict[str, Any]:
    """Both sides of a run, and whether their differences, in the units of `BOUNDS`, are small."""
    differences = {
        "inaction": abs(wall["inaction_fraction"] - simulated["inaction_fraction"]),
        "delays": total_variation(wall["delay_ticks"], simulated["delay_ticks"]),
        "return": relative(wall["mean_return"], simulated["mean_return"]),
        "updates": relative(wall["updates"], simulated["updates"]),
    }
    return {
        "wall": wall, "virtual": simulated, "differences": differences,
        "passed": all(differences[each] <= BOUNDS[each] for each in JUDGED[name]),
    }


def total_variation(one: dict[int, int], other: dict[int, int]) -> float:
    """Half of the sum of differences between two histograms, each of sum 1."""
    sums = sum(one.values()), sum(other.values())
    keys = {*one, *other}
    return sum(abs(one.get(key, 0) / sums[0] - other.get(key, 0) / sums[1]) for key in keys) / 2


def relative(wall: float, simulated: float) -> float:
    """The difference over the wall clock's figure."""
    return abs(simulated - wall) / abs(wall) if wall else float(simulated != wall)


def measure(seconds: float, seed: int) -> dict[str, Any]:
    """Both runs on both clocks."""
    with tempfile.TemporaryDirectory() as folder:

        def config_of(name: str, *settings: str) -> Config:
            own = (f"run.seed={seed}", f"run.state_dir={folder}/{name}")
            return rtagent.load_config(overrides=[*SETTINGS, *settings, *own])

        learning, saved = config_of("play"), Path(folder, "play", FOLDER)
        virtual.run(learning, seconds=TRAINED_S, update_s=UPDATE_S, checkpoint_dir=saved)
        plays = playing(learning)
        wall = on_the_wall_clock(plays, seconds)
        simulated = virtual.run(plays, seconds=seconds, policy=newest(saved))
        played = compared("playing", wall, simulated.figures(WARM_UP_S))
        learns = config_of("learn", *BY_TURNS)
        wall = on_the_wall_clock(learns, seconds)
        simulated = virtual.run(learns, seconds=seconds, update_s=wall["update_s"])
        learned = compared("learning", wall, simulated.figures(WARM_UP_S))
    return {
        "playing": played, "learning": learned, "bounds": BOUNDS,
        "passed": played["passed"] and learned["passed"],
    }


def main() -> int:
    """Both runs on both clocks; exit code 1 if a bound is missed."""
    parser = command_line(__doc__)
    parser.add_argument("--seconds", type=at_least(LEAST_S), default=60.0)
    parser.add_argument("--seed", type=from_zero, default=0)
    args = parser.parse_args()
    print(f"machine floor (bare loop): {measure_jitter(3.0)}", file=sys.stderr)
    return report(measure(args.seconds, args.seed), args.json, show)


def show(result: Result) -> None:
    """Print both sides of both runs, and how they differ."""
    for name, judged in JUDGED.items():
        found = result[name]
        for side in ("wall", "virtual"):
            print(f"{name:8}  {side:7}  {shown(found[side])}")
        verdict = "  ".join(f"{each} {found['differences'][each]:.4f}" for each in judged)
        print(f"{name:8}  differ   {verdict}  {'ok' if found['passed'] else 'MISSED'}")


def shown(figures: dict[str, Any]) -> str:
    """Figures of one side in a line."""
    delays = figures["delay_ticks"]
    total = sum(delays.values())
    parts = ", ".join(f"{delay}: {100 * count / total:.1f} %" for delay, count in delays.items())
    mean = figures["mean_return"]
    return (
        f"inaction {100 * figures['inaction_fraction']:.2f} %  delays {parts}  "
        f"return {np.nan if mean is None else mean:.1f} ({figures['episodes']} episodes)  "
        f"updates {figures['updates']}"
    )


if __name__ == "__main__":
    sys.exit(main())
