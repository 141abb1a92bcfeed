"""Learning at a distance: Starfall with the learner over a link of 50 ms, and with it here.

A trial is two daemons side by side, with one seed, alike but for `learning.where`: one learns in a
process of its own, the other in a Ray of this machine, behind a link with an emulated round trip of
50 ms. Both may make as many updates per tick, few enough for two quiet cores, so both make the same
updates, but for those of the time that Ray takes to start; weights are published as often. The
figure of each is the mean return of the episodes that end in the last third, exploration included;
`difference` is paired. The claim is that the mean of each lies within the spread of the other.
"""

from __future__ import annotations

import tempfile
from functools import partial
from typing import Any

import numpy as np

import rtagent
from benchmarks.comparison import figures_of_all
from benchmarks.experiment import Experiment
from benchmarks.learning_runs import learn
from benchmarks.paired_curves import draw_pair, figures_of
from benchmarks.results import Results

PUBLISH_EVERY = 16
UPDATES_PER_TICK = 0.15
MINUTES, QUICK_MINUTES = 8.0, 2.0
SAME = 0.95
"""Least share of the updates of one contender that the other must have made."""
CONTENDERS = {
    "here": (f"learning.publish_every={PUBLISH_EVERY}",),
    "link": (
        "learning.where=cluster", "cluster.emulated_rtt_ms=50",
        f"cluster.weights_every={PUBLISH_EVERY}",
    ),
}


def trials(quick: bool) -> list[dict[str, Any]]:
    """One comparison."""
    return [{"time": "wall clock", "minutes": QUICK_MINUTES if quick else MINUTES}]


def play(contender: str, minutes: float, seed: int) -> dict[str, Any]:
    """One run; its figures, by names that end in the contender's."""
    with tempfile.TemporaryDirectory() as folder:
        config = rtagent.load_config(None, [
            *CONTENDERS[contender], f"learning.updates_per_tick={UPDATES_PER_TICK}",
            f"run.seed={seed}", f"run.state_dir={folder}", "run.tensorboard=false",
        ], {})
        run = learn(config, minutes, f"{contender}, seed {seed}: ")
    return figures_of(contender, run, minutes, round_trip_ms=run["round_trip_ms"])


def run(time: str, minutes: float, seed: int) -> dict[str, Any]:
    """Both contenders."""
    calls = {name: partial(play, name, minutes, seed) for name in CONTENDERS}
    figures = figures_of_all(calls)
    return {"difference": figures["return_link"] - figures["return_here"], **figures}


def overlap(returns: dict[str, list[float]]) -> bool:
    """Whether the mean of each contender lies between the least and the largest of the other's."""
    here, link = returns.values()
    return all(
        min(own) <= np.mean(other) <= max(own) for own, other in ((here, link), (link, here))
    )


def conclusion(returns: dict[str, list[float]], updates: dict[str, float]) -> str:
    """What the returns say, if both have learned as often.

    Args:
        returns: returns of every seed, by contender.
        updates: mean number of updates, by contender.
    """
    if min(updates.values()) < SAME * max(1.0, *updates.values()):
        return "nothing is concluded, as the updates are not the same"
    if min(map(len, returns.values())) < 2:
        return "nothing is concluded, as one seed has no spread"
    return "within each other's spread" if overlap(returns) else "NOT within each other's spread"


def draw(results: Results, figure: Any) -> None:
    """The learning curves of both, and the spread of their returns."""
    axes = figure.subplots()
    done = [trial["figures"] for trial in results.trials if "figures" in trial]
    if not done:
        return
    draw_pair(axes, results, tuple(CONTENDERS), "Starfall, 50 ms (emulated) against none")
    returns = {name: [each[f"return_{name}"] for each in done] for name in CONTENDERS}
    updates = {
        name: float(np.mean([each[f"updates_{name}"] for each in done])) for name in CONTENDERS
    }
    spread = ", ".join(
        f"{name} {min(each):.1f} to {max(each):.1f} ({updates[name]:,.0f} updates)"
        for name, each in returns.items()
    )
    figure.suptitle(f"{spread}: {conclusion(returns, updates)}", fontsize=9)


EXPERIMENT = Experiment(trials, run, draw, size=(8, 5))
