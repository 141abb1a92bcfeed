"""Contenders and runs side by side, for comparisons of learning.

Each run is a whole daemon in a process of its own, which is killed with the program that began it,
so nothing goes on playing after an interruption. Sequential interaction is that of Riemer et al.,
Realtime Reinforcement Learning: one process acts, then waits for an update, then reads the next
frame. Discount and n-step count ticks, so both contenders have the same horizon in seconds and
differ only in how they interact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.experiment import outcomes
from benchmarks.results import Results
from rtagent.config import GAME_BOY_HZ
from rtagent.staggering.figures import processes_needed

COLOURS = {"sequential": "tab:red", "staggered": "tab:blue"}
"""The contenders, as pictures show them."""
TICK_S = 1.0 / GAME_BOY_HZ
SPREAD = 1.01
"""No real inference takes exactly the injected time; one process more absorbs that."""


def processes_of(contender: str, ticks: float) -> int:
    """Inference processes of a contender at an injected latency in ticks."""
    return 1 if contender == "sequential" else processes_needed(ticks, SPREAD * ticks, 1.0)


def settings_of(contender: str, ticks: float) -> list[str]:
    """Settings of a contender at a latency in ticks of a Game Boy, as `SECTION.KEY=VALUE`."""
    algorithm = "sequential-infer-learn" if contender == "sequential" else "adaptive"
    return [
        f"inference.injected_latency_ms={1e3 * ticks * TICK_S:.3f}",
        f"inference.processes={processes_of(contender, ticks)}",
        f"inference.algorithm={algorithm}",
    ]


def figures_of_all(
    runs: Mapping[str, Callable[[], dict[str, Any]]], at_once: int | None = None
) -> dict[str, Any]:
    """The figures of all runs together, where no run is of use without the others.

    Raises:
        RuntimeError: runs have failed, and why.
    """
    found = dict(outcomes(runs, at_once or len(runs)))
    failed = [
        f"{name} failed: {type(error).__name__}: {error}"
        for name, error in found.items() if isinstance(error, Exception)
    ]
    if failed:
        raise RuntimeError("; ".join(failed))
    return {name: value for figures in found.values() for name, value in figures.items()}


def draw_scores(panels: Any, results: Results, size: str, size_label: str, score: str) -> None:
    """Draw scores and inaction of both contenders against a size, in a panel each."""
    drawn = {"score": score, "inaction_percent": "inaction, %"}
    sizes = results.values(size)
    for axes, (figure, label) in zip(panels, drawn.items(), strict=True):
        for contender, colour in COLOURS.items():
            own = results.where(contender=contender)
            own.line(axes, size, figure, color=colour, label=contender)
        axes.set(xscale="log", xlabel=size_label, ylabel=label)
        axes.set_xticks(sizes, [f"{each:g}" for each in sizes], minor=False)
        axes.minorticks_off()
        axes.grid(alpha=0.3)
