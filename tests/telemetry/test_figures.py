"""What is declared of the figures, against itself and against what is really collected."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest

from rtagent.staggering.arbiter import Source
from rtagent.telemetry.figures.acting import InferenceWorker
from rtagent.telemetry.figures.cluster import Node
from rtagent.telemetry.figures.declaration import (
    Entry,
    Figure,
    as_json,
    entries,
    example,
    from_json,
)
from rtagent.telemetry.figures.document import Stats
from rtagent.telemetry.figures.learning import LearnerWorker, Trend
from rtagent.telemetry.trend import EPISODES, LEAST_EPISODES, MOST_CHANCE
from tests.telemetry.counted_run import Run
from tests.telemetry.test_cluster import example_document

EVERY_FIGURE = [*entries(Stats), *entries(InferenceWorker), *entries(LearnerWorker), *entries(Node)]
NOT_BASE_UNITS = re.compile(r"_(ms|us|ns|mb|kb|percent|milliseconds|microseconds|hz|s)(_|$)")
WHICH = {"id", "index", "pid"}


@pytest.fixture(scope="module")
def collected() -> Stats:
    run = Run(learning={"where": "cluster"})
    run.running(inference=1, learner=1)
    run.begin()
    for tick in range(9):
        run.deposit(tick, tick * 0.02)
        run.tick(tick, Source(tick % 3), tick - 1)
    run.cluster.write(example_document(run.clock.now()))
    return run.reader.read()


@pytest.mark.parametrize("begun", [True, False])
def test_collected_values_are_of_the_declared_types(collected: Stats, begun: bool) -> None:
    document = as_json(collected if begun else Run().reader.read())
    sources = [(entries(Stats), document)]
    if begun:
        sources += [
            (entries(InferenceWorker), document["inference"]["workers"][0]),
            (entries(LearnerWorker), document["learning"]["workers"][0]),
            (entries(Node), document["cluster"]["nodes"][0]),
        ]
    for found, source in sources:
        for each in found:
            if each.path.startswith("cluster.") and not begun:
                assert "cluster" not in source
                continue
            if each.path.startswith("inference.remote."):
                assert "remote" not in source["inference"]
                continue
            value = each.value(source)
            if value is None:
                assert each.field.optional, each.path
            elif each.field.section is None:
                assert type(value) is each.field.type, each.path


def test_json_and_back(collected: Stats) -> None:
    assert from_json(Stats, as_json(collected)) == collected
    assert as_json(from_json(Stats, example(Stats))) == example(Stats)


def test_figures_that_a_daemon_does_not_have_are_none() -> None:
    found = from_json(Stats, {"clock": {"ticks": 3, "of_a_later_version": 1}, "actions": None})
    assert found.clock.ticks == 3
    assert found.clock.lateness_us.p99 is None
    assert found.actions.interaction_ms.mean is None
    assert found.inference.workers == []
    assert found.cluster is None
    assert "cluster" not in as_json(found)


@pytest.mark.parametrize("entry", EVERY_FIGURE, ids=lambda each: each.path)
def test_a_declaration_is_whole(entry: Entry) -> None:
    figure, value = entry.figure, entry.figure.example
    assert bool(figure.none) == entry.field.optional
    assert re.fullmatch(r"[A-Z][^\n]*[^.]\.", figure.meaning)
    assert re.fullmatch(r"([A-Z][^\n]*[^.]\.)?", figure.family)
    if entry.field.section is None:
        assert type(value) is entry.field.type
        number = isinstance(value, int | float) and entry.path not in WHICH
        assert number == (figure.metric is not None)
    if figure.metric is not None:
        assert re.fullmatch(r"[a-z][a-z0-9_]*", figure.metric)
        assert not NOT_BASE_UNITS.search(figure.metric)
        assert (figure.kind == "counter") == figure.metric.endswith("_total")


@pytest.mark.parametrize("entry", EVERY_FIGURE, ids=lambda each: each.path)
def test_a_name_and_its_unit_agree(entry: Entry) -> None:
    unit = re.search(r"(?<!per)_(s|ms|us|hz|bytes)(?=$|\.)", entry.path)
    if unit is not None and not entry.path.endswith(".cv"):
        assert entry.figure.unit == {"us": "µs", "hz": "Hz"}.get(unit[1], unit[1])
    if entry.figure.unit in ("s", "ms", "µs"):
        assert unit is not None
        assert (entry.figure.metric or "").endswith("_seconds")


def test_figures_of_one_metric_share_their_help_and_differ_in_labels() -> None:
    metrics: dict[str, list[Figure]] = {}
    for entry in EVERY_FIGURE:
        if entry.figure.metric:
            metrics.setdefault(entry.figure.metric, []).append(entry.figure)
    for figures in metrics.values():
        for one, other in pairwise(figures):
            assert (one.family or one.meaning) == (other.family or other.meaning)
            assert set(one.labels) == set(other.labels) != set()
        labels: list[Any] = [sorted(each.labels.items()) for each in figures]
        assert len({str(each) for each in labels}) == len(labels)


def test_the_texts_of_the_trend_name_its_constants() -> None:
    figures = [each.figure for each in entries(Trend)]
    texts = " ".join(f"{each.meaning} {each.none}" for each in figures)
    assert texts.count(f"fewer than {LEAST_EPISODES}") == 1 + len(figures)
    assert f"at most {EPISODES}." in texts
    assert f"Up to {MOST_CHANCE:g} it is called" in texts
