"""The table of figures against the figures that are really collected."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest

from service.routes.figures import FIGURES, INFERENCE_WORKER, LEARNER_WORKER, REGRETS, Figure
from tests.telemetry.test_stats import Run

EVERY_FIGURE = [*FIGURES, *INFERENCE_WORKER, *LEARNER_WORKER]
NOT_BASE_UNITS = re.compile(r"_(ms|us|ns|mb|kb|percent|milliseconds|microseconds|hz|s)(_|$)")


def leaves(value: Any, path: str = "") -> dict[str, Any]:
    """Value by dotted path; lists are left out."""
    if isinstance(value, list):
        return {}
    if not isinstance(value, dict):
        return {path: value}
    found: dict[str, Any] = {}
    for key, inner in value.items():
        found |= leaves(inner, f"{path}.{key}" if path else key)
    return found


@pytest.fixture(scope="module")
def collected() -> dict[str, Any]:
    run = Run()
    run.roles(
        {"role": "inference", "index": 0, "pid": 7, "state": "running", "restarts": 0},
        {"role": "learner", "index": 0, "pid": 8, "state": "running", "restarts": 0},
    )
    run.begin()
    for tick in range(9):
        run.deposit(tick, tick * 0.02)
        run.tick(tick, tick % 3, tick - 1)
    return run.reader.collect()


def paths(figures: Iterable[Figure]) -> set[str]:
    return {figure.path for figure in figures}


def test_no_figure_without_an_entry_and_no_entry_without_a_figure(
    collected: dict[str, Any],
) -> None:
    regret = collected.pop("regret")
    assert set(leaves(collected)) == paths(FIGURES)
    assert set(regret) == set(REGRETS)
    assert set(leaves(collected["inference"]["workers"][0])) == paths(INFERENCE_WORKER)
    assert set(leaves(collected["learning"]["workers"][0])) == paths(LEARNER_WORKER)


def test_every_number_has_a_metric(collected: dict[str, Any]) -> None:
    names = {"id", "index", "pid"}
    for table, source in (
        (FIGURES, collected),
        (INFERENCE_WORKER, collected["inference"]["workers"][0]),
        (LEARNER_WORKER, collected["learning"]["workers"][0]),
    ):
        for figure in table:
            value = figure.value(source)
            if isinstance(value, int | float) and figure.path not in names:
                assert figure.metric, figure.path
            if isinstance(value, str):
                assert not figure.metric, figure.path
            if value is not None:
                assert figure.flag == isinstance(value, bool), figure.path


def test_entries_are_told_apart() -> None:
    for table in (FIGURES, INFERENCE_WORKER, LEARNER_WORKER):
        assert len(paths(table)) == len(table)
    series = [(each.metric, *sorted(each.labels.items())) for each in EVERY_FIGURE if each.metric]
    assert len(set(series)) == len(series)


def test_names_follow_the_rules_of_prometheus() -> None:
    for figure in EVERY_FIGURE:
        if figure.metric is not None:
            assert re.fullmatch(r"[a-z][a-z0-9_]*", figure.metric)
            assert not NOT_BASE_UNITS.search(figure.metric), figure.metric


def test_times_are_told_in_seconds() -> None:
    scales = {"_s": 1.0, "_ms": 1e-3, "_us": 1e-6}
    for figure in EVERY_FIGURE:
        unit = re.search(r"(?<!per)_(s|ms|us)(?=$|\.)", figure.path)
        if unit is None or figure.path.endswith(".cv"):
            assert figure.scale == 1.0, figure.path
        else:
            assert figure.scale == scales[unit[0]], figure.path
            assert (figure.metric or "").endswith("_seconds"), figure.path


def test_every_text_is_one_sentence() -> None:
    for figure in EVERY_FIGURE:
        for text in (figure.text, figure.family):
            if text is not None:
                assert re.fullmatch(r"[A-Z][^\n]*[^.]\.", text), text


def test_figures_of_one_metric_share_their_help() -> None:
    metrics: dict[str, list[Figure]] = {}
    for figure in EVERY_FIGURE:
        if figure.metric:
            metrics.setdefault(figure.metric, []).append(figure)
    for figures in metrics.values():
        for one, other in pairwise(figures):
            assert (one.family or one.text) == (other.family or other.text)
            assert set(one.labels) == set(other.labels) != set()
