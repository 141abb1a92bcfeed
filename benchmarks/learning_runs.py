"""What experiments of learning share: runs that learn, and policies that do not."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.spaces import Discrete
from numpy.typing import NDArray

import rtagent
from benchmarks.runs import check_whole
from rtagent.cli.output import known
from rtagent.clock import NANO
from rtagent.config import Config
from rtagent.env.adapter import open_environment

if TYPE_CHECKING:
    from rtagent.memory.world import World
    from rtagent.virtual import VirtualRun

EXAMPLES = Path(__file__).parents[1] / "examples"
LOOK_S = 10.0
"""Seconds between two looks at the episodes: the record keeps 1,024, and a pole that falls at once
makes more of them in a minute."""
LAST_EPISODES = 20
LAST_PART = 1.0 / 3.0
OFFLINE: dict[str, Callable[[np.random.Generator, int], int]] = {
    "random": lambda rng, actions: int(rng.integers(actions)),
    "do nothing": lambda rng, actions: 0,
}
"""Policies that ignore what they observe."""
BASELINE_EPISODES = 200


def learn(config: Config, minutes: float, label: str | None = None) -> dict[str, Any]:
    """Run the daemon; its figures, and `episodes`: end (s) and return of each.

    Args:
        config: configuration of the run.
        minutes: length of the run, from its first tick on.
        label: begins each line of progress, which is then printed once a minute: several runs may
            go on side by side. If None, one line is printed again and again.

    Raises:
        RuntimeError: a process keeps failing, so what was played is of another run.
    """
    episodes: list[tuple[float, float]] = []
    seen = 0
    every_s, begins, ends = (60.0, label, "\n") if label else (LOOK_S, "\r", "")
    with rtagent.Runtime(config) as runtime:
        runtime.wait_ready(60)
        # What has been played meanwhile counts.
        start = runtime.world.metrics.environment.first_due_ns / NANO
        end, due = start + 60.0 * minutes, start + every_s
        while time.monotonic() < end:
            time.sleep(min(LOOK_S, max(0.0, end - time.monotonic())))
            world = runtime.world
            recent, seen = world.metrics.environment.episodes.since(seen)
            episodes += timed(recent, world)
            check_whole(runtime)
            if time.monotonic() < min(due, end):
                continue
            due += every_s
            learning = runtime.stats()["learning"]
            print(
                f"{begins}{(time.monotonic() - start) / 60:5.1f} min  "
                f"{len(episodes)} episodes  "
                f"last {LAST_EPISODES}: {known(_mean_of_last(episodes), '{:6.2f}')}  "
                f"{learning['updates']} updates  epsilon {known(learning['epsilon'], '{:.2f}')}   ",
                end=ends, file=sys.stderr, flush=True,
            )
        stats = runtime.stats()
    if not label:
        print(file=sys.stderr)
    return {
        "seed": config.run.seed,
        "episodes": episodes,
        "mean_return_last_20": _mean_of_last(episodes),
        "updates": stats["learning"]["updates"],
        "inaction_fraction": stats["actions"]["inaction_fraction"],
        "ticks": stats["clock"]["ticks"],
        "decisions": stats["actions"]["agent"],
        "round_trip_ms": (stats.get("cluster") or {}).get("round_trip_ms"),
    }


def _mean_of_last(episodes: list[tuple[float, float]]) -> float:
    last = [value for _, value in episodes[-LAST_EPISODES:]]
    return float(np.mean(last)) if last else math.nan


def timed(recent: NDArray[np.void], world: World) -> list[tuple[float, float]]:
    """End, in seconds since the run's first tick was due, and return of each episode.

    By the rows of the ledger, so that a slip of the clock counts. Of an episode whose row is gone,
    by the number of its last tick, as if the clock had never slipped.

    Args:
        recent: episodes as the environment's record has them.
        world: of the run; its first tick is not 0 where the replay held ticks before.
    """
    rows, whole = world.ledger.at(recent["end_tick"])
    due_ns = rows["time_ns"] - rows["lateness_ns"] - world.metrics.environment.first_due_ns
    planned = (recent["end_tick"] - world.first_tick) * world.blueprint.tick_seconds
    seconds = np.where(whole, due_ns / NANO, planned)
    return list(zip(seconds.tolist(), recent["return"].tolist(), strict=True))


def learn_virtually(config: Config, minutes: float, **options: Any) -> dict[str, Any]:
    """Like `learn`, in virtual time: `episodes`, and what `VirtualRun.figures` has."""
    import rtagent.virtual

    found = rtagent.virtual.run(config, seconds=60.0 * minutes, **options)
    return {**found.figures(), "episodes": episodes_of(found)}


def episodes_of(run: VirtualRun) -> list[tuple[float, float]]:
    """End (s) and return of each episode of a run in virtual time."""
    return list(zip(run.ends_s.tolist(), run.returns.tolist(), strict=True))


def late_return(episodes: list[tuple[float, float]], minutes: float) -> float:
    """Mean return of the episodes that ended in the last third of a run.

    Raises:
        RuntimeError: no episode ended then.
    """
    returns = [value for end, value in episodes if end > 60.0 * minutes * (1.0 - LAST_PART)]
    if not returns:
        raise RuntimeError("no episode ended in the last third: play for longer")
    return float(np.mean(returns))


def play_offline(name: str, seed: int) -> float:
    """Mean return of a policy of `OFFLINE` in Starfall, which waits for each action."""
    choose, adapter = OFFLINE[name], open_environment(Config().env)
    rng = np.random.default_rng(seed)
    assert isinstance(adapter.action_space, Discrete)
    actions = int(adapter.action_space.n)
    returns = []
    for episode in range(BASELINE_EPISODES):
        adapter.reset(seed if episode == 0 else None)
        total, over = 0.0, False
        while not over:
            step = adapter.step(choose(rng, actions))
            total += step.reward
            over = step.terminated or step.truncated
        returns.append(total)
    adapter.close()
    return float(np.mean(returns))
