"""The picture of a training run: returns, loss, acting in time, batch size, deadlines."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rtagent.files.append import older

Floats = npt.NDArray[np.float64]

SMOOTHED_EPISODES = 20
MOST_SAMPLES = 2048
FIGURES = {
    "loss": "learning.loss",
    "inaction": "actions.inaction_fraction_60s",
    "delay": "actions.delay_ticks.mean",
    "batch_size": "learning.batch_size",
    "time_ratio": "r3.time_ratio",
    "data_ratio": "r3.data_ratio",
}
"""What a history holds, and its path in the figures."""
PANELS = {"inaction": "inaction, last 60 s", "delay": "delay (ticks)", "batch_size": "batch size"}
"""Figures with a panel of their own, and its label; a constant batch size has none."""
MOST_TICKS = 5
"""Labels at the axis of the loss."""


@dataclass(frozen=True)
class Episodes:
    """Finished episodes, in their order.

    Attributes:
        seconds: (n,) from the first tick of the run to the episode's end.
        returns: (n,).
    """

    seconds: Floats
    returns: Floats


class History:
    """Figures of a run at moments that lie further apart the longer it lasts.

    Args:
        interval: seconds between two moments at first.
    """

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._due = 0.0
        self._rows: list[tuple[float, ...]] = []

    def add(self, seconds: float, figures: Mapping[str, Any]) -> None:
        """Store the figures of `GET /v1/stats`, seconds after the first tick, if they are due."""
        if seconds < self._due:
            return
        self._rows.append((seconds, *(_at(figures, path) for path in FIGURES.values())))
        if len(self._rows) >= MOST_SAMPLES:
            self._rows = self._rows[::2]
            self._interval *= 2.0
        self._due = seconds + self._interval

    def series(self, name: str) -> tuple[Floats, Floats]:
        """Seconds and values of one of `FIGURES`, each (n,), at moments when it was known."""
        rows = np.array(self._rows, np.float64).reshape(-1, 1 + len(FIGURES))
        values = rows[:, 1 + list(FIGURES).index(name)]
        known = np.isfinite(values)
        return rows[known, 0], values[known]


def read_episodes(path: Path) -> Episodes:
    """The episodes in the recorder's file and its predecessor; none if there is no file.

    A last line that the recorder has not finished is left out.
    """
    rows: list[tuple[float, float]] = []
    for each in (older(path), path):
        with suppress(FileNotFoundError), open(each, newline="") as file:
            # Cut off in its last number, a line would still be read, as another number.
            whole = (line for line in file if line.endswith("\n"))
            rows += (
                (float(row["seconds"]), float(row["return"])) for row in csv.DictReader(whole)
            )
    return Episodes(*np.array(rows, np.float64).reshape(-1, 2).T)


def moving_mean(values: Floats, window: int) -> Floats:
    """Mean of each value and those before it, at most `window` of them; (n,) like the values."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(0, ends - window)
    means: Floats = (sums[ends] - sums[starts]) / (ends - starts)
    return means


def draw(path: Path, title: str, episodes: Episodes, history: History) -> None:
    """Write the picture of a run as a PNG file.

    Raises:
        OSError: it cannot be written.
    """
    # Imported here since it takes a second, and only the end of a training run needs it.
    from matplotlib.figure import Figure

    panels = [partial(_draw_returns, episodes=episodes), partial(_draw_loss, history=history)]
    for name, label in PANELS.items():
        if name != "batch_size" or len(np.unique(history.series(name)[1])) > 1:
            panels.append(partial(_draw_series, history=history, name=name, label=label))
    if len(history.series("time_ratio")[0]):
        panels.append(partial(_draw_ratios, history=history))
    figure = Figure(figsize=(8.0, 2.2 * len(panels)), layout="constrained")
    axes: Sequence[Any] = figure.subplots(len(panels), 1, sharex=True)
    figure.suptitle(title)
    for axis, panel in zip(axes, panels, strict=True):
        panel(axis)
        axis.grid(alpha=0.3)
    axes[-1].set_xlabel("seconds")
    figure.align_ylabels()
    figure.savefig(path, dpi=120)


def _draw_returns(axis: Any, episodes: Episodes) -> None:
    axis.plot(episodes.seconds, episodes.returns, ".", alpha=0.4, label="episode")
    mean = moving_mean(episodes.returns, SMOOTHED_EPISODES)
    axis.plot(episodes.seconds, mean, label=f"mean of up to {SMOOTHED_EPISODES}")
    axis.set_ylabel("return")
    axis.legend(loc="upper left")


def _draw_loss(axis: Any, history: History) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    seconds, losses = history.series("loss")
    axis.plot(seconds, losses, linewidth=1.0)
    axis.set_ylabel("loss")
    # A logarithmic axis of less than a decade may have no label at all.
    if len(losses) and losses.max() >= 10.0 * losses.min() > 0.0:
        axis.set_yscale("log")
        # Labels of the minor ticks would overlap.
        axis.yaxis.set_major_locator(LogLocator(numticks=MOST_TICKS))
        axis.yaxis.set_minor_formatter(NullFormatter())


def _draw_series(axis: Any, history: History, name: str, label: str) -> None:
    from matplotlib.ticker import PercentFormatter

    seconds, values = history.series(name)
    axis.plot(seconds, values, linewidth=1.0)
    axis.set_ylabel(label)
    # The margin of Matplotlib's own limits is a share of how much the values differ.
    axis.set_ylim(0.0, 1.05 * values.max(initial=0.0) or None)
    if name == "inaction":
        axis.yaxis.set_major_formatter(PercentFormatter(1.0))


def _draw_ratios(axis: Any, history: History) -> None:
    for name, label in (("time_ratio", "time"), ("data_ratio", "data")):
        axis.plot(*history.series(name), label=label, linewidth=1.0)
    axis.set_ylabel("share of the horizon")
    axis.legend(loc="upper left")


def _at(figures: Mapping[str, Any], path: str) -> float:
    """The number at a dotted path; NaN if it is not known."""
    value: Any = figures
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    known = isinstance(value, int | float) and isfinite(value)
    return float(value) if known else float("nan")
