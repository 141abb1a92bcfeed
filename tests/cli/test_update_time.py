"""The measurement of a learner's update, whatever it learns."""

from __future__ import annotations

import pytest

from rtagent.cli.update_time import measure_updates
from rtagent.config_sources import load_config
from rtagent.evaluation.probe import probe


@pytest.mark.parametrize(("world", "algorithm"), [("CartPole-v1", "dqn"), ("Pendulum-v1", "td3")])
def test_updates_of_every_kind_are_timed(world: str, algorithm: str) -> None:
    config = load_config(None, [f"env.id={world}", "learning.batch_size=7"], {})
    told: list[float] = []
    times = measure_updates(config, probe(config), 0.02, told.append)
    assert (times.algorithm, times.batch_size) == (algorithm, 7)
    assert len(times.gradient_s) == len(times.apply_s) >= 3
    assert times.gradient_s.min() > 0.0
    # A thread that an earlier test has left may compute, too.
    assert 0.0 < times.busy_s < 2.0 * (times.gradient_s + times.apply_s).mean()
    assert told[-1] == 1.0
