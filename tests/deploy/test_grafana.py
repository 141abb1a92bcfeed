"""The Grafana dashboard: every metric it asks for is one that the daemon has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rtagent.telemetry.figures.declaration import example
from rtagent.telemetry.figures.document import Stats
from service.routes.metrics import PREFIX, prometheus_text

FILE = Path(__file__).parents[2] / "deploy" / "grafana.json"
SCRAPED = {"instance", "job"}
SELECTOR = re.compile(PREFIX + r"\w+(?:\{[^}]*\})?")
ROWS = ["Acting in time", "Inference", "Learning", "Cluster", "R3 and memory", "Processes"]


@pytest.fixture(scope="module")
def metrics() -> dict[str, set[str]]:
    """Labels by metric, of a daemon that knows everything."""
    role = {"role": "learner", "index": 0, "state": "running", "restarts": 0}
    status = {"version": "1", "run_id": "r", "state": "running", "roles": [role]}
    labels: dict[str, set[str]] = {}
    for line in prometheus_text(example(Stats), status).splitlines():
        if not line.startswith("#"):
            labels.setdefault(re.split(r"[ {]", line)[0], set()).update(
                re.findall(r'(\w+)="', line)
            )
    return labels


@pytest.fixture(scope="module")
def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FILE.read_text())
    return found


def panels(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def targets(dashboard: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Expression and legend of everything that is drawn."""
    for panel in panels(dashboard):
        for target in panel["targets"]:
            yield target["expr"], target["legendFormat"]


def test_every_metric_exists_with_its_labels(
    dashboard: dict[str, Any], metrics: dict[str, set[str]]
) -> None:
    for expression, legend in targets(dashboard):
        selectors = SELECTOR.findall(expression)
        assert selectors, expression
        for selector in selectors:
            name, _, inside = selector.partition("{")
            assert name in metrics, expression
            assert 'instance="$instance"' in inside, expression
            assert set(re.findall(r"(\w+)=", inside)) <= metrics[name] | SCRAPED, expression
            assert set(re.findall(r"\{\{(\w+)\}\}", legend)) <= metrics[name], legend
    for variable in dashboard["templating"]["list"]:
        for name in SELECTOR.findall(variable.get("definition", "")):
            assert name in metrics


def test_counters_are_drawn_as_rates_or_as_totals_of_the_run(dashboard: dict[str, Any]) -> None:
    for expression, _ in targets(dashboard):
        if re.match(r"(rate|increase)\(", expression):
            assert re.fullmatch(r"\w+\(\w+_total\{[^}]*\}\[\$__rate_interval\]\)", expression)


def test_every_labelled_series_can_be_told_apart(
    dashboard: dict[str, Any], metrics: dict[str, set[str]]
) -> None:
    for expression, legend in targets(dashboard):
        for selector in SELECTOR.findall(expression):
            name, _, inside = selector.partition("{")
            free = metrics[name] - set(re.findall(r"(\w+)=", inside))
            if name != f"{PREFIX}info":
                assert free <= set(re.findall(r"\{\{(\w+)\}\}", legend)), expression


def test_quantiles_are_not_called_percentiles(dashboard: dict[str, Any]) -> None:
    for expression, legend in targets(dashboard):
        assert "p{{quantile}}" not in legend, f"{expression}: 0.99 would be p0.99"


def test_every_panel_explains_itself(dashboard: dict[str, Any]) -> None:
    rows = [panel["title"] for panel in dashboard["panels"] if panel["type"] == "row"]
    assert rows == ROWS
    for panel in panels(dashboard):
        assert panel["title"]
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["datasource"]["uid"] == "${datasource}", panel["title"]
        for target in panel["targets"]:
            assert target["datasource"]["uid"] == "${datasource}", panel["title"]
        letters = [target["refId"] for target in panel["targets"]]
        assert len(set(letters)) == len(letters), panel["title"]
    names = [variable["name"] for variable in dashboard["templating"]["list"]]
    assert names == ["datasource", "instance"]


def test_single_figures_are_those_of_now(dashboard: dict[str, Any]) -> None:
    """Of a range, Grafana would show the last sample of a daemon that has been gone for long."""
    for panel in panels(dashboard):
        if panel["type"] == "stat":
            assert [target["instant"] for target in panel["targets"]] == [True], panel["title"]
            assert not any(target["range"] for target in panel["targets"]), panel["title"]


def test_panels_have_their_own_place(dashboard: dict[str, Any]) -> None:
    identities = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(identities)) == len(identities)
    taken: dict[tuple[int, int], str] = {}
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        assert place["x"] >= 0
        assert place["x"] + place["w"] <= 24
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in taken, (panel["title"], taken[x, y])
                taken[x, y] = panel["title"]
