"""How well the agent plays when a checkpoint is written."""

from __future__ import annotations

import pytest

from rtagent.learning.checkpointing import LIVE_EPISODES, score
from rtagent.memory.process_metrics import FinishedEpisode, ProcessMetrics
from rtagent.storage.checkpoint import Score
from tests.conftest import private


@pytest.fixture
def metrics() -> ProcessMetrics:
    return private(ProcessMetrics)


def finish(metrics: ProcessMetrics, *returns: float) -> None:
    for value in returns:
        count = metrics.environment.episodes.count
        metrics.environment.episodes.append(FinishedEpisode(0, 10, value, count))


def test_a_few_episodes_say_nothing(metrics: ProcessMetrics) -> None:
    finish(metrics, *range(LIVE_EPISODES - 1))
    assert score(metrics) is None


def test_the_newest_live_episodes_count(metrics: ProcessMetrics) -> None:
    finish(metrics, 1000.0, *range(LIVE_EPISODES))
    assert score(metrics) == Score((LIVE_EPISODES - 1) / 2, LIVE_EPISODES, "live")


def test_a_return_that_is_no_number_is_no_score(metrics: ProcessMetrics) -> None:
    finish(metrics, *range(LIVE_EPISODES - 1), float("nan"))
    assert score(metrics) is None


def test_an_evaluation_counts_more(metrics: ProcessMetrics) -> None:
    finish(metrics, *range(LIVE_EPISODES))
    record = metrics.evaluation
    record.evaluations, record.episodes, record.mean_return = 2, 10, 7.5
    assert score(metrics) == Score(7.5, 5, "evaluation")
