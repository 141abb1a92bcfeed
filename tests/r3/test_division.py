"""How episodes move the division of the memory."""

from __future__ import annotations

from rtagent.memory.process_metrics import ProcessMetrics
from rtagent.r3.division import EpisodeScales
from tests.conftest import private
from tests.r3.horizon_life import GrowingEpisodes


def test_an_episode_that_ends_during_the_count_counts_once() -> None:
    environment = private(ProcessMetrics).environment
    environment.episodes = episodes = GrowingEpisodes([1.0, 3.0])
    scales = EpisodeScales(environment, tick_seconds=0.1, window=4)
    assert scales.update()
    assert episodes.count
    assert scales.update()
    assert scales.beta == 3.0
    assert not scales.update()
