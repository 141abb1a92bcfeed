"""Duel at an injected latency of 5 ticks: encounters won while learning, staggered and sequential.

Fig. 3 of Riemer et al., Realtime Reinforcement Learning, on a game of progress: an encounter won or
caught counts as won, and leads to the next. For each seed two whole daemons play on the wall clock
and learn, side by side, one with as many staggered inference processes as the latency needs, the
other with one process that infers, then waits for an update. Both begin with a demonstration in
their replay, as Tetris does in the paper's App. C: a scripted player, as late as they are and
deciding as seldom as an inference takes; `demonstrated_share` tells its share in what each has seen
by the end, which is larger the longer acting waits for updates. Both look equally far ahead, since
gamma and n-step count ticks.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import rtagent
from benchmarks.comparison import COLOURS, processes_of, settings_of
from benchmarks.experiment import Experiment
from benchmarks.learning_runs import learn
from benchmarks.results import Results, half_interval
from benchmarks.worlds.duel_demonstration import ENVIRONMENT, record
from rtagent.storage.demonstration_file import SUFFIX

TICKS_OF_LATENCY = 5
DELAY_TICKS = TICKS_OF_LATENCY + 1
SELDOM = DELAY_TICKS
"""Ticks between two decisions of the player that demonstrates for the single process, which itself
decides at every fifth tick: one more, so that the player sees the effect of its last key before it
presses another."""
# An encounter lasts some hundred ticks and is rewarded at its end: long sums, a discount that sees
# so far, and a distribution rather than a mean, which would hide how little a single tick matters.
COMMON = (
    f"env.id={ENVIRONMENT}",
    "learning.algorithm=c51",
    "learning.v_min=-1.0",
    "learning.v_max=1.0",
    "learning.gamma=0.997",  # per tick: a horizon of 333 ticks, 5.6 s
    "learning.n_step=32",
    "policy.epsilon_steps=2500",
    # A policy that is stuck in a menu comes out of it by chance.
    "policy.epsilon_end=0.15",
    "policy.exploration_hold_ticks=4",
    # The cores are shared: with as many updates as the machine gives, the figure would be of that.
    "learning.updates_per_tick=0.12",
)
SHOWN = ("policy.epsilon_start=0.15", "learning.demonstration_margin=0.3")
"""After a demonstration, exploration need not begin at random."""
LAST_MINUTES = 5.0
CURVE_POINTS = 200


class Shown(NamedTuple):
    """What a contender is shown.

    Attributes:
        path: file of the demonstration.
        interval: ticks from one decision in it to the next.
        decisions: about how many decisions it has.
    """

    path: Path
    interval: int
    decisions: int


def trials(quick: bool) -> list[dict[str, Any]]:
    """Both contenders of a seed run side by side."""
    return [
        {"time": "wall clock", "contender": name, "minutes": 1.0 if quick else 20.0,
         "demonstrated": 3_000 if quick else 32_000}
        for name in COLOURS
    ]


def demonstrate(folder: Path, name: str, seed: int, ticks: int) -> Shown:
    """Record what a contender is shown.

    The contender that decides at every fifth tick is shown as many decisions as it makes while the
    other contender makes `ticks`.
    """
    interval = SELDOM if processes_of(name, TICKS_OF_LATENCY) == 1 else 1
    decisions = ticks if interval == 1 else ticks // TICKS_OF_LATENCY
    path = folder / f"{name}-{seed}{SUFFIX}"
    record(path, decisions * interval, DELAY_TICKS, seed, interval)
    return Shown(path, interval, decisions)


def run(contender: str, seed: int, minutes: float, demonstrated: int, **named: Any) -> Any:
    """Play and learn; the seconds at which an encounter was won, and a few figures."""
    with tempfile.TemporaryDirectory() as folder:
        shown = demonstrate(Path(folder), contender, seed, demonstrated)
        config = rtagent.load_config(None, [
            *COMMON, *SHOWN, *settings_of(contender, TICKS_OF_LATENCY),
            f"learning.demonstrations={shown.path}",
            f"learning.demonstration_interval={shown.interval}",
            f"run.seed={seed}", f"run.state_dir={folder}/state",
        ], {})
        found = learn(config, minutes, f"{contender:11} seed {seed}: ")
    returns = [value for _, value in found["episodes"]]
    won = [second for second, value in found["episodes"] if value > 0]
    late = [second for second in won if second > 60.0 * (minutes - LAST_MINUTES)]
    return {
        "won_per_minute": len(won) / minutes,
        "won_per_minute_at_the_end": len(late) / min(minutes, LAST_MINUTES),
        "lost": sum(value < 0 for value in returns),
        "out_of_time": sum(value == 0 for value in returns),
        "inaction_percent": 100.0 * found["inaction_fraction"],
        "demonstrated_share": shown.decisions / (shown.decisions + found["decisions"]),
        "updates": found["updates"], "won_at_s": won,
    }


def curves(
    runs: list[dict[str, Any]], minutes: float
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Encounters won over time.

    Returns:
        Minutes, mean over the runs, and half of the 95 % interval (NaN with a single run).
    """
    times = np.linspace(0.0, minutes, CURVE_POINTS)
    counts = np.array(
        [np.searchsorted(np.array(run["won_at_s"]) / 60.0, times, side="right") for run in runs]
    )
    return times, counts.mean(axis=0), half_interval(counts)


def draw(results: Results, figure: Any) -> None:
    """Encounters won against wall-clock time."""
    axes = figure.subplots()
    for name, colour in COLOURS.items():
        trials = [trial for trial in results.where(contender=name).trials if "figures" in trial]
        if not trials:
            continue
        minutes = trials[0]["params"]["minutes"]
        times, mean, half = curves([trial["figures"] for trial in trials], minutes)
        processes = processes_of(name, TICKS_OF_LATENCY)
        label = f"{name}, {processes} process{'es' if processes > 1 else ''}"
        axes.plot(times, mean, color=colour, label=label)
        axes.fill_between(times, mean - half, mean + half, color=colour, alpha=0.2, linewidth=0)
    axes.set(xlabel="minutes of wall-clock time", ylabel="encounters won", ylim=(0, None))
    axes.set_title(f"Duel, latency of {TICKS_OF_LATENCY} ticks (injected)")
    axes.legend(loc="upper left")
    axes.grid(alpha=0.3)


EXPERIMENT = Experiment(trials, run, draw, size=(7, 4.5), wave=2)
