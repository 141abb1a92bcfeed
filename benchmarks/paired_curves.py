"""Learning curves of two contenders, seed by seed, and the difference of their returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.learning_runs import LAST_EPISODES, late_return
from benchmarks.results import Results
from rtagent.telemetry.learning_curve import moving_mean

COLOURS = ("tab:blue", "tab:red")


def figures_of(
    contender: str, run: Mapping[str, Any], minutes: float, **more: Any
) -> dict[str, Any]:
    """Figures of a contender, by names that end in its own.

    Args:
        contender: its name.
        run: what `learn` or `learn_virtually` has returned.
        minutes: length of the run.
        more: further figures.
    """
    figures = {
        "return": late_return(run["episodes"], minutes), "updates": run["updates"],
        "inaction": run["inaction_fraction"], "curve": run["episodes"], **more,
    }
    return {f"{name}_{contender}": value for name, value in figures.items()}


def draw_pair(axes: Any, results: Results, contenders: tuple[str, ...], title: str) -> None:
    """Draw the curves of one condition.

    Args:
        axes: the panel to draw on.
        results: trials of the condition. Their figures are `difference` and those of
            `figures_of` for each contender.
        contenders: names of the contenders.
        title: name of the condition.
    """
    for contender, colour in zip(contenders, COLOURS, strict=True):
        for trial in results.trials:
            curve = np.array(trial.get("figures", {}).get(f"curve_{contender}", []), np.float64).T
            if len(curve):
                smooth = moving_mean(curve[1], LAST_EPISODES)
                axes.plot(curve[0] / 60.0, smooth, color=colour, alpha=0.5, linewidth=1)
        point = results.point(f"return_{contender}")
        if point is not None:
            label = f"{contender}: {point.mean:.1f} in the last third"
            axes.plot([], [], color=colour, label=label)
    point = results.point("difference")
    if point is not None:
        half = f"{point.half:.1f}" if point.seeds > 1 else "unknown"
        axes.set_title(f"{title}: difference {point.mean:.1f} +- {half} (95 %)")
    axes.set(xlabel="minutes", ylabel=f"mean return of {LAST_EPISODES} episodes")
    axes.legend()
    axes.grid(alpha=0.3)
