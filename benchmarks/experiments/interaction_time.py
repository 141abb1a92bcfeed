"""Interaction time against inference time: staggered modes beside sequential interaction.

Fig. 2 of Riemer et al., Realtime Reinforcement Learning, in numbers. The interaction time is that
between two ticks that executed a new action. Sequential interaction waits for its inference, and,
where it learns as the paper's does, for a learning step that takes as long; staggered processes
keep it at one tick. Most points are virtual time (`rtagent/staggering/simulator.py`); those of
`time = wall clock` are whole daemons with an injected latency.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.acting.live_staggering import measure, padded
from benchmarks.experiment import Experiment
from benchmarks.results import Results
from rtagent.config import GAME_BOY_HZ
from rtagent.staggering.figures import processes_needed
from rtagent.staggering.simulator import SimulationConfig, simulate

STAGGERED = ("adaptive", "maximum-time", "expected-time")
LEARNING = "sequential, learning"
TICKS = (0.5, 1, 2, 3, 5, 8, 12, 20, 30, 50)
SPREAD = 0.02
LONGEST = 1.08
"""Longest of 10,000 inferences with that spread, over their mean."""
PERIODS = 24
"""Inferences of each process, at least: the second half is counted."""


def trials(quick: bool) -> list[dict[str, Any]]:
    """Every contender at every inference time; few of them live."""
    virtual = [
        {"time": "virtual", "contender": name, "ticks": ticks, "seconds": 30.0 if quick else 120.0}
        for ticks in (TICKS[::3] if quick else TICKS)
        for name in (*STAGGERED, "unstaggered", "sequential", LEARNING)
    ]
    return virtual + [
        {"time": "wall clock", "contender": name, "ticks": ticks, "seconds": 4.0 if quick else 20.0}
        for ticks in ((5,) if quick else (2, 5, 12)) for name in ("adaptive", "sequential")
    ]


def processes_of(contender: str, ticks: float) -> int:
    """Processes by the formula; `unstaggered` has as many as `adaptive`."""
    if contender.startswith("sequential"):
        return 1
    mode = contender if contender in STAGGERED else "adaptive"
    return processes_needed(ticks, LONGEST * ticks, 1.0, mode)


def run(time: str, contender: str, ticks: float, seconds: float, seed: int) -> dict[str, Any]:
    """One contender at one inference time."""
    algorithm = contender.partition(",")[0]
    processes = processes_of(contender, ticks)
    if time == "wall clock":
        # On the wall clock it is one process that acts whenever it is free.
        live = "unstaggered" if algorithm == "sequential" else algorithm
        found = measure(padded(1e3 * ticks / GAME_BOY_HZ, processes, live), seconds)
        return {"processes": processes, **{name: found[name] for name in (
            "interaction_ticks", "gap_cv", "inaction_percent", "delay_mean"
        )}}
    # A learning step in sequence is time in which nothing is inferred: the cycle is that long.
    busy = 2.0 * ticks if contender == LEARNING else ticks
    config = SimulationConfig(
        algorithm, processes, busy, "gauss", SPREAD, max(seconds, PERIODS * busy / GAME_BOY_HZ)
    )
    figures = simulate(config, np.random.default_rng(seed)).figures()
    return {
        "processes": processes, "interaction_ticks": figures["interaction_mean"],
        "gap_cv": figures["gap_cv"],
        "inaction_percent": 100.0 * (figures["inaction_fraction"] or 0.0),
        # Its simulated delay would count the learning step, which comes after the action.
        "delay_mean": None if contender == LEARNING else figures["delay_mean"],
    }


def draw(results: Results, figure: Any) -> None:
    """Interaction time and inaction against inference time."""
    panels = figure.subplots(1, 2)
    for axes, name, label in zip(
        panels, ("interaction_ticks", "inaction_percent"),
        ("interaction time, ticks", "inaction, %"), strict=True,
    ):
        virtual, live = (results.where(time=time) for time in ("virtual", "wall clock"))
        colours = {}
        for place, contender in enumerate(virtual.values("contender")):
            colours[contender] = f"C{place}"
            own = virtual.where(contender=contender)
            own.line(axes, "ticks", name, label=contender, color=colours[contender])
        for contender in live.values("contender"):
            live.where(contender=contender).line(
                axes, "ticks", name, label=f"{contender}, live", fmt="x", markersize=9,
                color=colours.get(contender, "black"),
            )
        axes.set(xlabel="inference time, ticks", ylabel=label, xscale="log")
        axes.grid(alpha=0.3)
    panels[0].set_yscale("log")
    panels[0].legend(fontsize=8)
    note = "; x: daemons on the wall clock" if live.trials else ""
    figure.suptitle(f"Virtual time, inference times with 2 % standard deviation{note}")


EXPERIMENT = Experiment(trials, run, draw, size=(11, 4.5))
