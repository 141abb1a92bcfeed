"""Staggering modes under outliers, drift, steps and kills: inaction, delay and evenness.

Our own experiment, in virtual time: the algorithms that run live, and those of Riemer et al.,
Realtime Reinforcement Learning, as printed (`published-...`), with an inference time of 5 ticks,
which something disturbs. The first quarter of a run is left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.experiment import Experiment
from benchmarks.results import Results, bars
from rtagent.staggering.inference_times import Slowdown
from rtagent.staggering.register import ALGORITHMS
from rtagent.staggering.simulator import (
    Event,
    Kill,
    Outlier,
    Restart,
    SetProcesses,
    SimulationConfig,
    simulate,
)

TICKS = 5.0
SPREAD = 0.02
DISTRIBUTIONS = {
    "outliers": ("outliers", 0.01),
    "lognormal": ("lognormal", 0.5),
    "drift": ("drift", 0.5),
    "step": ("step", 0.5),
}
"""1 % take 10 times as long; sigma; to 1.5 times the mean and back; to 1.5 times for good."""
DISTURBED = (
    "nothing", *DISTRIBUTIONS, "one outlier", "slow 5 s", "kill, restart", "kill", "rescale",
)
EVERY_S = 20.0
MODES = tuple(name for name in ALGORITHMS if "learn" not in name)
FIGURES = {
    "inaction_percent": "inaction, %",
    "delay_mean": "delay, ticks",
    "gap_cv": "unevenness (CV)",
}


def trials(quick: bool) -> list[dict[str, Any]]:
    """Every mode under everything, with few processes to spare and with many."""
    return [
        {"time": "virtual", "disturbed": disturbed, "processes": processes, "mode": mode,
         "seconds": 60.0 if quick else 240.0}
        for disturbed in DISTURBED for processes in (6, 9) for mode in MODES
    ]


def events_of(disturbed: str, processes: int, seconds: float) -> tuple[Event, ...]:
    """What happens, from a quarter of the run on: again and again, or, for `kill`, once."""
    times = [float(at) for at in np.arange(seconds / 4 + 2.0, seconds - 6.0, EVERY_S)]
    victim = min(2, processes - 1)
    match disturbed:
        case "one outlier":
            return tuple(Outlier(at, 10.0) for at in times)
        case "slow 5 s":
            return tuple(Slowdown(at, at + 5.0, 1.5) for at in times)
        case "kill, restart":
            return tuple(
                event for at in times for event in (Kill(at, victim), Restart(at + 0.5, victim))
            )
        case "kill":
            return (Kill(times[0], victim),)
        case "rescale" if processes > 1:
            return tuple(
                SetProcesses(at + later, count) for at in times
                for later, count in ((0.0, processes + 2), (5.0, processes))
            )
    return ()


def run(
    time: str, disturbed: str, processes: int, mode: str, seconds: float, seed: int
) -> dict[str, Any]:
    """One mode under one disturbance."""
    distribution, spread = DISTRIBUTIONS.get(disturbed, ("gauss", SPREAD))
    processes = 1 if mode == "sequential" else processes
    config = SimulationConfig(
        mode, processes, TICKS, distribution, spread, seconds,
        events=events_of(disturbed, processes, seconds),
    )
    figures = simulate(config, np.random.default_rng(seed)).figures(seconds / 4, seconds)
    return {
        "inaction_percent": _percent(figures["inaction_fraction"]),
        "strict_inaction_percent": _percent(figures["strict_inaction_fraction"]),
        "delay_mean": figures["delay_mean"], "delay_p99": figures["delay_p99"],
        "gap_cv": figures["gap_cv"],
        "overwritten_percent": _percent(figures["overwritten_fraction"]),
    }


def _percent(fraction: float | None) -> float | None:
    return None if fraction is None else 100.0 * fraction


def draw(results: Results, figure: Any) -> None:
    """Bars by disturbance, a colour for each mode."""
    counts, modes = results.values("processes"), results.values("mode")
    panels = figure.subplots(len(FIGURES), len(counts), sharex=True, squeeze=False)
    names = results.values("disturbed")
    for column, processes in enumerate(counts):
        for axes, (name, label) in zip(panels[:, column], FIGURES.items(), strict=True):
            for place, mode in enumerate(modes):
                here = results.where(processes=processes, mode=mode)
                points = [here.where(disturbed=each).point(name) for each in names]
                bars(axes, place, len(modes), points, label=mode, error_kw={"linewidth": 0.8})
            axes.set_ylabel(label)
            axes.grid(alpha=0.3, axis="y")
            axes.set_ylim(bottom=0.0)
        panels[0, column].set_yscale("symlog", linthresh=0.1)
        panels[0, column].set_title(f"{processes} processes (sequential: one)")
        panels[-1, column].set_xticks(range(len(names)), names, rotation=30, ha="right")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(modes), fontsize=8)
    figure.suptitle("What disturbs an inference time of 5 ticks (virtual time)")


EXPERIMENT = Experiment(trials, run, draw, size=(14, 9), seeds=tuple(range(10)))
