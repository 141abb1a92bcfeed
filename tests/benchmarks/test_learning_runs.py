"""The benchmark of learning: when its episodes ended."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks.learning_runs import timed
from tests.conftest import make_blueprint
from tests.rows import private_rings, write_row

EPISODES = np.array([(130, 1.0), (160, -2.5)], [("end_tick", "<i8"), ("return", "<f8")])
START_NS, SECOND_NS = 7_000_000_000, 1_000_000_000


def world_of(first_tick: int) -> Any:
    """A world of two ticks a second whose rows are gone."""
    blueprint = make_blueprint()
    ledger = private_rings(blueprint, 64)[1]
    return SimpleNamespace(
        first_tick=first_tick, ledger=ledger, blueprint=SimpleNamespace(tick_seconds=0.5),
        metrics=SimpleNamespace(environment=SimpleNamespace(first_due_ns=START_NS)),
    )


@pytest.mark.parametrize("first_tick", [0, 100])
def test_time_begins_with_the_world_not_with_what_was_in_the_replay(first_tick: int) -> None:
    ended = timed(EPISODES, world_of(first_tick))
    assert ended == [((130 - first_tick) / 2, 1.0), ((160 - first_tick) / 2, -2.5)]


def test_time_counts_what_the_clock_slipped() -> None:
    world = world_of(100)
    for tick in range(100, 161):
        slipped_ns = 3 * SECOND_NS if tick >= 150 else 0
        due_ns = START_NS + (tick - 100) * SECOND_NS // 2 + slipped_ns
        write_row(world.ledger, tick, time_ns=due_ns + 5, lateness_ns=5)
    assert timed(EPISODES, world) == [(15.0, 1.0), (33.0, -2.5)]
