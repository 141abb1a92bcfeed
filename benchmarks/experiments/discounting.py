"""Discounting by ticks and by decisions: what one and several inference processes learn.

Our own experiment, in virtual time (`rtagent.virtual`): whole runs of CartPole at 200 ticks a
second, as `examples/cartpole.toml` has them, whose inferences take some ticks and whose updates
take 2 ms. With `learning.discount = "ticks"` gamma is per tick and n-step counts ticks, so a single
process and several staggered ones look equally far ahead; with `"decisions"` the horizon of a
process that decides seldom is as much longer as it decides more seldom. Exploration is included.
"""

from __future__ import annotations

from typing import Any

from benchmarks.comparison import processes_of
from benchmarks.experiment import Experiment
from benchmarks.learning_runs import EXAMPLES, late_return, learn_virtually
from benchmarks.results import Results
from rtagent.config import Config
from rtagent.config_sources import load_config

RATE_HZ = 200.0
TICKS = (0.8, 2, 4)
CONTENDERS = {"sequential": "-", "staggered": "--"}
"""The contenders, and the line with which each is drawn."""
DISCOUNTS = {"ticks": "tab:blue", "decisions": "tab:orange"}
UPDATE_S = 0.002


def trials(quick: bool) -> list[dict[str, Any]]:
    """Both contenders, by inference time and by what is counted."""
    return [
        {"time": "virtual", "ticks": ticks, "contender": contender, "discount": discount,
         "seconds": 15.0 if quick else 150.0}
        for ticks in (TICKS[1:2] if quick else TICKS)
        for contender in CONTENDERS for discount in DISCOUNTS
    ]


def config_of(contender: str, ticks: float, discount: str, seed: int) -> Config:
    """Configuration of a run; `sequential` is one process, and learning goes on beside it."""
    alone = contender == "sequential"
    return load_config(EXAMPLES / "cartpole.toml", [
        f"inference.injected_latency_ms={1e3 * ticks / RATE_HZ}",
        f"inference.processes={processes_of(contender, ticks)}",
        f"inference.algorithm={'unstaggered' if alone else 'adaptive'}",
        f"learning.discount={discount}", f"run.seed={seed}",
    ], {})


def run(
    time: str, ticks: float, contender: str, discount: str, seconds: float, seed: int
) -> dict[str, Any]:
    """A run; its figures."""
    minutes = seconds / 60.0
    found = learn_virtually(
        config_of(contender, ticks, discount, seed), minutes, update_s=UPDATE_S
    )
    return {
        "mean_return": late_return(found["episodes"], minutes),
        "inaction_percent": 100.0 * found["inaction_fraction"],
        "delay_mean": found["delay_mean"], "updates": found["updates"],
    }


def draw(results: Results, figure: Any) -> None:
    """Returns by inference time."""
    axes = figure.subplots()
    for contender, style in CONTENDERS.items():
        for discount, colour in DISCOUNTS.items():
            results.where(contender=contender, discount=discount).line(
                axes, "ticks", "mean_return", fmt=f"o{style}", color=colour,
                label=f"{contender}, gamma per {discount[:-1]}",
            )
    axes.set(xlabel="inference time, ticks", ylabel="mean return, last third of the run")
    axes.set_title("CartPole at 200 Hz, virtual time")
    axes.legend()
    axes.grid(alpha=0.3)


EXPERIMENT = Experiment(trials, run, draw, seeds=(0, 1, 2, 3, 4))
