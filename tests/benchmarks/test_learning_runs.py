"""The benchmark of learning: when its episodes ended."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.learning_runs import timed

EPISODES = np.array([(130, 1.0), (160, -2.5)], [("end_tick", "<i8"), ("return", "<f8")])


@pytest.mark.parametrize("first_tick", [0, 100])
def test_time_begins_with_the_world_not_with_what_was_in_the_replay(first_tick: int) -> None:
    ended = timed(EPISODES, first_tick, 0.5)
    assert ended == [((130 - first_tick) / 2, 1.0), ((160 - first_tick) / 2, -2.5)]
