"""The figures in Prometheus' text format. Unknown figures are left out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from rtagent.telemetry.figures.acting import InferenceWorker, Regrets
from rtagent.telemetry.figures.cluster import Node
from rtagent.telemetry.figures.declaration import Entry, Figure, entries, fields_of, text_of
from rtagent.telemetry.figures.document import Stats
from rtagent.telemetry.figures.learning import LearnerWorker

PREFIX = "rtagent_"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
STATES = ("starting", "running", "degraded", "failed", "stopping")
FIGURES = entries(Stats)
LISTS = (
    ("inference", "workers", "worker", "id", entries(InferenceWorker)),
    ("learning", "workers", "worker", "index", entries(LearnerWorker)),
    ("cluster", "nodes", "node", "id", entries(Node)),
)
"""Section, list, label, the field that identifies an item, and the figures of an item."""


def series_name(figure: Figure) -> str:
    """Name and labels of a figure in Prometheus; empty: it is not there."""
    if figure.metric is None:
        return ""
    labels = ",".join(f'{name}="{value}"' for name, value in figure.labels.items())
    return f"{PREFIX}{figure.metric}" + (f"{{{labels}}}" if labels else "")


def prometheus_text(stats: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    """The page that Prometheus scrapes, from `GET /v1/stats` and `GET /v1/status`."""
    page = _Page()
    page.add("info", "gauge", "The current run.", 1, {
        "version": status.get("version"), "run_id": status.get("run_id"),
        "algorithm": stats.get("inference", {}).get("algorithm"),
    })
    for state in STATES:
        page.add("state", "gauge", "1 for the daemon's state, 0 for the others.",
                 int(status.get("state") == state), {"state": state})
    for role in status.get("roles", ()):
        which = {"role": role.get("role"), "index": role.get("index")}
        page.add("process_running", "gauge", "1 if the process of this role runs.",
                 int(role.get("state") == "running"), which)
        page.add("process_restarts_total", "counter", "Times the process was replaced.",
                 role.get("restarts"), which)
    page.add_figures(FIGURES, stats, {})
    for section, items, label, which_one, figures in LISTS:
        for item in stats.get(section, {}).get(items, ()):
            page.add_figures(figures, item, {label: item.get(which_one)})
    for each in fields_of(Regrets):
        regret = (stats.get("regret") or {}).get(each.name) or {}
        labels = {"of": each.name, "kind": regret.get("kind"), "unit": regret.get("unit")}
        page.add("regret", "gauge", text_of(Regrets), regret.get("value"), labels)
    return page.text()


class _Page:
    """Samples grouped by metric; metrics are in the order of their first sample."""

    def __init__(self) -> None:
        self._families: dict[str, list[str]] = {}

    def add_figures(
        self, figures: Iterable[Entry], source: Mapping[str, Any], labels: Mapping[str, Any]
    ) -> None:
        for each in figures:
            figure, value = each.figure, each.value(source)
            if figure.metric and isinstance(value, int | float):
                kind = "counter" if figure.kind == "counter" else "gauge"
                self.add(figure.metric, kind, figure.family or figure.meaning,
                         value * figure.scale, {**labels, **figure.labels})

    def add(self, metric: str, kind: str, text: str, value: Any, labels: Mapping[str, Any]) -> None:
        if not isinstance(value, int | float):
            return
        name = PREFIX + metric
        head = [f"# HELP {name} {_without_breaks(text)}", f"# TYPE {name} {kind}"]
        pairs = ",".join(
            f'{key}="{_escaped(str(item))}"' for key, item in labels.items() if item is not None
        )
        sample = f"{name}{{{pairs}}}" if pairs else name
        self._families.setdefault(name, head).append(f"{sample} {_number(value)}")

    def text(self) -> str:
        return "".join(f"{line}\n" for lines in self._families.values() for line in lines)


def _without_breaks(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _escaped(text: str) -> str:
    """The value of a label, which stands in quotes, with its own quotes escaped."""
    return _without_breaks(text).replace('"', '\\"')


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(value) if isinstance(value, int) else f"{value:.12g}"
