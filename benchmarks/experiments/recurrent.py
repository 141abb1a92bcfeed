"""Recurrent policies: what an LSTM is worth where velocities are hidden, in virtual time.

CartPole shows the position of the cart and the angle of the pole, and not how fast they change. A
trial plays it with an LSTM and with the plain MLP, with one seed, alike but for the network and
its learning from sequences: with one process, whose actions are a tick old, and with two staggered
ones, each of which takes longer than a tick. The figure of each is the mean return of the episodes
that end in the last third, exploration included; `difference` is paired.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import rtagent
import rtagent.virtual
from benchmarks.experiment import VIRTUAL, Experiment
from benchmarks.learning_runs import EXAMPLES, episodes_of
from benchmarks.paired_curves import draw_pair, figures_of
from benchmarks.results import Results

WORLD = "benchmarks.worlds.hidden_velocity:HiddenVelocity-v0"
RATE_HZ = 50.0
TICKS = {1: 0.4, 2: 1.5}
"""How long an inference takes, by the number of processes."""
UPDATE_S = 0.002
MINUTES = 10.0
CONTENDERS = ("lstm", "mlp")
SETTINGS = (
    f"env.id={WORLD}", f"env.rate_hz={RATE_HZ}", "learning.learning_rate=1e-3",
    "learning.batch_size=128", "learning.updates_per_tick=0.25", "learning.target_tau=0.02",
    "learning.burn_in=8", "learning.sequence=8", "policy.epsilon_steps=500",
)


def trials(quick: bool) -> list[dict[str, Any]]:
    """With and without staggering."""
    minutes = 3.0 if quick else MINUTES
    return [{"time": VIRTUAL, "processes": count, "minutes": minutes} for count in TICKS]


def play(processes: int, minutes: float, network: str, seed: int) -> dict[str, Any]:
    """One run; its figures, by names that end in the network's."""
    config = rtagent.load_config(
        EXAMPLES / "cartpole.toml",
        [*SETTINGS, f"policy.network={network}", f"inference.processes={processes}"], {},
    )
    found = rtagent.virtual.run(
        config, seconds=60.0 * minutes, seed=seed, update_s=UPDATE_S,
        inference_s=TICKS[processes] / RATE_HZ,
    )
    more = {}
    if network == "lstm":
        lags = found.rows["state_lag"]
        more["lag"] = float(lags[lags > 0].mean())
    run = {**found.figures(), "episodes": episodes_of(found)}
    return figures_of(network, run, minutes, **more)


def run(time: str, processes: int, minutes: float, seed: int) -> dict[str, Any]:
    """Both contenders."""
    assert time == VIRTUAL
    figures: dict[str, Any] = {}
    for network in CONTENDERS:
        figures |= play(processes, minutes, network, seed)
    return {"difference": figures["return_lstm"] - figures["return_mlp"], **figures}


def draw(results: Results, figure: Any) -> None:
    """The learning curves of both, and what the difference is."""
    counts = results.values("processes")
    for axes, count in zip(np.atleast_1d(figure.subplots(1, len(counts))), counts, strict=True):
        draw_pair(axes, results.where(processes=count), CONTENDERS, f"processes: {count}")


EXPERIMENT = Experiment(trials, run, draw, size=(11, 4.5), seeds=(0, 1, 2, 3, 4), wave=1)
