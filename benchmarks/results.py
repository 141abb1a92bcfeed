"""The finished trials of an experiment: tables, means with intervals, lines of a picture."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rtagent.evaluation.intervals import student

Trial = Mapping[str, Any]


class Point(NamedTuple):
    """A mean over the seeds in which a figure is known.

    Attributes:
        mean: over these.
        half: of its 95 % interval; NaN with one seed.
        seeds: their number.
        unknown: trials that have ended, and in which it is not known.
    """

    mean: float
    half: float
    seeds: int
    unknown: int = 0


@dataclass(frozen=True)
class Results:
    """Trials: `params`, `seed`, and `figures` or why it `failed`."""

    trials: Sequence[Trial]

    @property
    def failed(self) -> list[Trial]:
        """Trials without figures."""
        return [trial for trial in self.trials if "failed" in trial]

    def where(self, **params: Any) -> Results:
        """The trials with these parameters."""
        return Results([
            trial for trial in self.trials
            if all(trial["params"].get(name) == value for name, value in params.items())
        ])

    def values(self, name: str) -> list[Any]:
        """The values of a parameter, in the order of the plan."""
        found = (trial["params"].get(name) for trial in self.trials)
        return [value for value in dict.fromkeys(found) if value is not None]

    def point(self, figure: str) -> Point | None:
        """The mean of a figure over the trials that have it; None if no trial has it."""
        said = [trial["figures"].get(figure) for trial in self.trials if "figures" in trial]
        known = [value for value in said if value is not None]
        if not known:
            return None
        half = float(half_interval(np.array(known)))
        return Point(float(np.mean(known)), half, len(known), len(said) - len(known))

    def line(self, axes: Any, x: str, figure: str, **how: Any) -> None:
        """Draw a figure against a parameter, with intervals.

        A point is left out where the figure is unknown in a trial, for those where it is known are
        no fair sample.

        Args:
            axes: to draw on.
            x: the parameter.
            figure: its name.
            how: options of Matplotlib's `errorbar`.
        """
        found = {value: self.where(**{x: value}).point(figure) for value in self.values(x)}
        points = {
            value: point for value, point in sorted(found.items())
            if point is not None and not point.unknown
        }
        if points:
            means, halves, *_ = zip(*points.values(), strict=True)
            how = {"fmt": "o-", "capsize": 2, "markersize": 4, **how}
            axes.errorbar(list(points), means, halves, **how)

    def table(self) -> list[dict[str, Any]]:
        """A row for each trial."""
        return [
            {**trial["params"], "seed": trial["seed"], **_numbers(trial),
             "failed": trial.get("failed", "")}
            for trial in self.trials
        ]

    def curves(self) -> list[dict[str, Any]]:
        """A row for each figure that is a list of numbers, with a column for each number.

        A number that is unknown is an empty field.
        """
        return [
            {**trial["params"], "seed": trial["seed"], "figure": name,
             **{str(step): value for step, value in enumerate(values, 1)}}
            for trial in self.trials for name, values in trial.get("figures", {}).items()
            if isinstance(values, list) and all(
                each is None or isinstance(each, int | float) for each in values
            )
        ]

    def intervals(self) -> list[dict[str, Any]]:
        """A row for each figure under each condition: mean, its 95 % interval, seeds, failures.

        `unknown` says in how many trials a figure is unknown that is known in others.
        """
        rows = []
        for params in {identity(trial, 0): trial["params"] for trial in self.trials}.values():
            here = Results([each for each in self.trials if each["params"] == params])
            figures = dict.fromkeys(name for trial in here.trials for name in _numbers(trial))
            for figure in figures or [""]:
                point = here.point(figure)
                row = {**params, "figure": figure}
                if point is not None:
                    low, high = point.mean - point.half, point.mean + point.half
                    alone = point.seeds < 2
                    row |= {"mean": point.mean, "low": "" if alone else low,
                            "high": "" if alone else high, "seeds": point.seeds}
                    row |= {"unknown": point.unknown} if point.unknown else {}
                rows.append({**row, "failed": len(here.failed)})
        return rows

    def means(self) -> list[dict[str, Any]]:
        """A row for each condition, for people: what differs, and `mean ± half` of each figure."""
        rows: dict[str, dict[str, Any]] = {}
        for row in self.intervals():
            params = {name: row[name] for name in row if len(self.values(name)) > 1}
            text = "unknown" if "mean" not in row else f"{row['mean']:.4g}"
            if row.get("high", "") != "":
                text += f" ± {row['high'] - row['mean']:.2g}"
            if row.get("unknown"):
                text += f" (unknown in {row['unknown']} of {row['unknown'] + row['seeds']})"
            shown = rows.setdefault(json.dumps(params), params)
            shown |= {row["figure"]: text} if row["figure"] else {}
            shown |= {"failed": row["failed"]} if row["failed"] else {}
        return list(rows.values())


def half_interval(values: NDArray[Any]) -> NDArray[Any]:
    """Half of the 95 % interval of a mean over seeds.

    Args:
        values: (seeds, ...).

    Returns:
        (...); NaN with a single seed.
    """
    seeds = len(values)
    if seeds < 2:
        return np.full(values.shape[1:], np.nan)
    half: NDArray[Any] = student(seeds) * values.std(axis=0, ddof=1)
    return half / math.sqrt(seeds)


def bars(axes: Any, place: int, of: int, points: Sequence[Point | None], **how: Any) -> None:
    """Draw one of several series of bars, which stand side by side at 0, 1, ...

    Args:
        axes: to draw on.
        place: number of the series.
        of: how many series there are.
        points: heights with their intervals. A bar is left out for None, and as in `Results.line`
            where the figure is unknown in a trial.
        how: options of Matplotlib's `bar`.
    """
    points = [None if point is None or point.unknown else point for point in points]
    axes.bar(
        np.arange(len(points)) + 0.8 * ((place + 0.5) / of - 0.5),
        [np.nan if point is None else point.mean for point in points], 0.8 / of,
        yerr=[np.nan if point is None else point.half for point in points], **how,
    )


def identity(trial: Trial, seed: int | None = None) -> str:
    """Parameters and seed as one string, which identifies a trial."""
    return json.dumps([trial["params"], trial["seed"] if seed is None else seed], sort_keys=True)


def _numbers(trial: Trial) -> dict[str, Any]:
    """The figures that are numbers, or unknown."""
    return {
        name: value for name, value in trial.get("figures", {}).items()
        if value is None or isinstance(value, int | float)
    }
