"""Learning curves of two contenders, seed by seed, and the difference of their returns."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.results import Results
from rtagent.telemetry.learning_curve import moving_mean

EPISODES = 20
COLOURS = ("tab:blue", "tab:red")


def draw_pair(axes: Any, results: Results, contenders: tuple[str, ...], title: str) -> None:
    """Draw the curves of one condition.

    Args:
        axes: the panel to draw on.
        results: trials of the condition. Their figures are `difference` and, for each contender,
            `return_NAME` and `curve_NAME`: end (s) and return of every episode.
        contenders: names of the contenders.
        title: name of the condition.
    """
    for contender, colour in zip(contenders, COLOURS, strict=True):
        for trial in results.trials:
            curve = np.array(trial.get("figures", {}).get(f"curve_{contender}", [])).T
            if len(curve):
                smooth = moving_mean(curve[1], EPISODES)
                axes.plot(curve[0] / 60.0, smooth, color=colour, alpha=0.5, linewidth=1)
        point = results.point(f"return_{contender}")
        if point is not None:
            axes.plot([], [], color=colour, label=f"{contender}: {point.mean:.1f}")
    point = results.point("difference")
    if point is not None:
        half = f"{point.half:.1f}" if point.seeds > 1 else "unknown"
        axes.set_title(f"{title}: difference {point.mean:.1f} +- {half}")
    axes.set(xlabel="minutes", ylabel=f"mean return of {EPISODES} episodes")
    axes.legend()
    axes.grid(alpha=0.3)
