"""Processes needed to act, or to learn, on every tick: measured, beside the formula.

Figs. 5 and 6 of Riemer et al., Realtime Reinforcement Learning. Measured is the smallest number
with which 99 of 100 ticks execute a new action (one that is used again is none), or see an update;
the formula is that of `rtagent plan`. Numbers up to one and a half times the time in ticks plus 4
are tried, with daemons some around the formula's; where a seed needs more, its number is unknown,
and the picture has no point. In three ways, by `how`:

    simulated   the staggering that runs live in virtual time, up to 600 processes; round-robin
                learners by their recurrence: a gradient begins when its learner is free, and is
                applied in turn
    injected    whole daemons on the wall clock, whose inferences are padded to the time shown
    network     the time of a ResNet of that width, measured here; then its daemon with 1, 2, ...
                real processes, as many as the cores carry (None if these are too few), and the
                number simulated for the measured time
"""

from __future__ import annotations

import math
import os
import tempfile
import time as clock
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

import rtagent
from benchmarks.comparison import processes_of
from benchmarks.experiment import Experiment
from benchmarks.results import Results
from benchmarks.runs import acting_run, check_whole, rows_of
from rtagent.cli.forward_time import measure
from rtagent.cli.plan import processes_for
from rtagent.config import GAME_BOY_HZ
from rtagent.learning.learners_needed import learners_needed
from rtagent.staggering.arbiter import Source
from rtagent.staggering.figures import processes_needed
from rtagent.staggering.register import LIVE
from rtagent.staggering.simulator import SimulationConfig, simulate

LIMIT = 0.01
SPREAD = 0.02
LONGEST = dict.fromkeys(LIVE, 1.08) | {"adaptive": 1.0465}
"""Of times with that spread, what the formula of a mode takes for the longest, over their mean: the
longest of 10,000, or their 99th percentile."""
PERIODS = 24
TICKS = (0.8, 2, 5, 10, 20, 40, 57, 100, 200, 400, 550)
INJECTED = (2, 5, 10, 20, 40, 57)
WIDTHS = (1, 7, 29)
APPLY = 0.1
"""Ticks to apply a gradient."""
NEIGHBOURS = 8
"""How many numbers around the formula's a live search tries."""


def trials(quick: bool) -> list[dict[str, Any]]:
    """Simulated ones, then daemons."""
    simulated = [
        {"time": "virtual", "how": "simulated", "what": what, "ticks": ticks, "mode": mode}
        for ticks in (TICKS[1:9:3] if quick else TICKS)
        for what, mode in (*(("acting", mode) for mode in LIVE), ("learning", "round-robin"))
    ]
    seconds = 4.0 if quick else 20.0
    injected = [
        {"time": "wall clock", "how": "injected", "what": "acting", "ticks": ticks,
         "mode": "adaptive", "seconds": seconds}
        for ticks in (INJECTED[:2] if quick else INJECTED)
    ]
    network = [
        {"time": "wall clock", "how": "network", "what": what, "width": width,
         "mode": "adaptive" if what == "acting" else "round-robin", "seconds": seconds}
        for width in (WIDTHS[:1] if quick else WIDTHS) for what in ("acting", "learning")
    ]
    return simulated + injected + network


def run(how: str, what: str, mode: str, seed: int, **more: Any) -> dict[str, Any]:
    """The number measured, and the formula's."""
    if how == "network":
        return _of_network(what, more["width"], more["seconds"], seed)
    ticks = more["ticks"]
    if what == "learning":
        formula = learners_needed(ticks, APPLY, 1.0)
        return {"needed": simulated_learners(ticks, SPREAD, seed), "formula": formula}
    formula = processes_needed(ticks, LONGEST[mode] * ticks, 1.0, mode)
    if how == "injected":
        formula = processes_of("staggered", ticks)
        return {"needed": _injected(ticks, formula, more["seconds"]), "formula": formula}
    return {"needed": simulated_processes(ticks, SPREAD, mode, seed), "formula": formula}


def smallest(enough: Callable[[int], bool], most: int) -> int | None:
    """The smallest number from 1 that is enough, if any up to `most` is and every larger one is."""
    if not enough(most):
        return None
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def simulated_processes(ticks: float, spread: float, mode: str, seed: int) -> int | None:
    """Inference processes with which enough ticks execute a new action, in virtual time."""

    def enough(processes: int) -> bool:
        config = SimulationConfig(
            mode, processes, ticks, "gauss", spread, max(120.0, PERIODS * ticks / GAME_BOY_HZ)
        )
        figures = simulate(config, np.random.default_rng(seed)).figures()
        return (figures["strict_inaction_fraction"] or 0.0) <= LIMIT

    return smallest(enough, math.ceil(1.5 * ticks) + 4)


def simulated_learners(ticks: float, spread: float, seed: int, updates: int = 20_000) -> int | None:
    """Round-robin learners that make an update for each tick.

    Update k ends a_k = max(a_(k-1), a_(k-N) + tau_k) + apply: its learner begins when it has
    applied its last gradient, and applies the next one in turn.
    """
    taus = np.maximum(np.random.default_rng(seed).normal(1.0, spread, updates), 0.01) * ticks

    def enough(learners: int) -> bool:
        applied = [0.0] * learners
        newest = middle = 0.0
        for place, tau in enumerate(taus.tolist()):
            newest = max(newest, applied[place % learners] + tau) + APPLY
            applied[place % learners] = newest
            if place + 1 == updates // 2:
                middle = newest
        return updates / 2 / (newest - middle) >= 1.0 - LIMIT

    return smallest(enough, math.ceil(1.5 * ticks) + 4)


def _injected(ticks: float, formula: int, seconds: float) -> int | None:
    """Measured with a daemon: upward from some below the formula's, down if that is enough."""
    first = max(1, formula - NEIGHBOURS // 2)
    with _daemon(
        f"inference.injected_latency_ms={1e3 * ticks / GAME_BOY_HZ:.3f}",
        "learning.processes=0", f"inference.processes={first}",
    ) as runtime:
        def enough(processes: int) -> bool:
            runtime.set_inference(processes=processes)
            clock.sleep(2.0 + 4.0 * ticks / GAME_BOY_HZ)
            return _idle_fraction(runtime, seconds) <= LIMIT

        if enough(first):
            while first > 1 and enough(first - 1):
                first -= 1
            return first
        return next(filter(enough, range(first + 1, first + NEIGHBOURS)), None)


def _of_network(what: str, width: int, seconds: float, seed: int) -> dict[str, Any]:
    """Times of a network measured here, its number by the formula, simulated and with processes."""
    network = "policy.network=resnet", f"policy.width={width}"
    with tempfile.TemporaryDirectory() as folder:
        config = rtagent.load_config(None, [*network, f"run.state_dir={folder}"], {})
        forward, update = measure(config, seconds)
    found: dict[str, Any] = {"parameters": forward.parameters}
    if what == "acting":
        ticks = forward.inference_s * forward.rate_hz
        spread = float(ticks.std() / ticks.mean())
        mean = float(ticks.mean())
        found |= {
            "tau_ticks": mean, "formula": processes_for(ticks, 1.0)["adaptive"],
            "simulated": simulated_processes(mean, spread, "adaptive", seed),
        }
        settings = *network, "learning.processes=0", "inference.processes=1"
    elif update is None:
        raise MemoryError("too little memory to learn with this network")
    else:
        gradient, apply = (
            float(each.mean()) * forward.rate_hz for each in (update.gradient_s, update.apply_s)
        )
        found |= {"tau_ticks": gradient, "formula": learners_needed(gradient, apply, 1.0)}
        settings = *network, "inference.processes=1", "inference.injected_latency_ms=500"
    found["needed"] = _with_processes(what, settings, seconds)
    return found


def _with_processes(what: str, settings: tuple[str, ...], seconds: float) -> int | None:
    """Measured with real processes, up to one more than there are cores."""
    with _daemon(*settings) as runtime:
        for processes in range(1, len(os.sched_getaffinity(0)) + 2):
            if what == "acting":
                runtime.set_inference(processes=processes)
                clock.sleep(3.0)
                enough = _idle_fraction(runtime, seconds) <= LIMIT
            else:
                runtime.set_learning(processes=processes)
                clock.sleep(3.0)
                before = runtime.stats()
                clock.sleep(seconds)
                check_whole(runtime)
                after = runtime.stats()
                updates, ticks = (
                    after[room][name] - before[room][name]
                    for room, name in (("learning", "updates"), ("clock", "ticks"))
                )
                enough = updates >= (1.0 - LIMIT) * ticks
            if enough:
                return processes
    return None


def _idle_fraction(runtime: rtagent.Runtime, seconds: float) -> float:
    """Share of the ticks of the next seconds that executed no new action."""
    return float((rows_of(runtime, seconds)["source"] != Source.AGENT).mean())


def _daemon(*settings: str) -> AbstractContextManager[rtagent.Runtime]:
    """A daemon that runs with these settings."""
    return acting_run(
        "replay.capacity=20000", "run.tensorboard=false", "learning.learning_starts=256",
        *settings, limit_s=120.0,
    )


def draw(results: Results, figure: Any) -> None:
    """Against tau and, if networks were timed, their parameters; acting, then learning."""
    timed = bool(results.where(how="network").trials)
    panels = figure.subplots(2, 2, squeeze=False) if timed else figure.subplots(1, 2)[:, None]
    for (left, *more), what in zip(panels, ("acting", "learning"), strict=True):
        of = results.where(what=what)
        for mode in of.where(how="simulated").values("mode"):
            of.where(how="simulated", mode=mode).line(
                left, "ticks", "needed", label=f"{mode}, simulated"
            )
        usual = "adaptive" if what == "acting" else "round-robin"
        of.where(how="simulated", mode=usual).line(
            left, "ticks", "formula", fmt="k:", label=f"formula, {usual}"
        )
        of.where(how="injected").line(
            left, "ticks", "needed", fmt="x", color="red", markersize=9, label="injected, measured"
        )
        left.set(xlabel=f"{'inference' if what == 'acting' else 'gradient'}, ticks")
        for right in more:
            _by_parameters(of, right)
        for axes in (left, *more):
            axes.set(xscale="log", yscale="log", ylabel=f"processes to {what[:-3]} on every tick")
            axes.grid(alpha=0.3)
            axes.legend(fontsize=7)
    figure.suptitle(
        "Simulated: virtual time, times with 2 % standard deviation; measured: wall clock"
    )


def _by_parameters(of: Results, axes: Any) -> None:
    """What was measured, simulated for the measured time, and what the formula says."""
    for name, mark in (("needed", "rx"), ("simulated", "bo"), ("formula", "k_")):
        drawn = [
            (trial["figures"]["parameters"], trial["figures"].get(name))
            for trial in of.where(how="network").trials if "figures" in trial
        ]
        drawn = [(parameters, number) for parameters, number in drawn if number is not None]
        if drawn:
            axes.plot(*zip(*drawn, strict=True), mark, label=name, markersize=7)
    axes.set(xlabel="parameters (ResNets, timed here)")


EXPERIMENT = Experiment(trials, run, draw, size=(11, 5.5))
