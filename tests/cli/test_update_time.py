"""The measurement of a learner's update, whatever it learns."""

from __future__ import annotations

import pytest

from rtagent.cli.update_time import measure_updates
from rtagent.config_sources import load_config
from rtagent.evaluation.probe import probe
from rtagent.learning.precision import PrecisionTimes
from rtagent.learning.shared_update import SharedUpdate


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


@pytest.mark.parametrize(("setting", "network", "precision"), [
    ("auto", "mlp", "bfloat16"), ("auto", "lstm", "bfloat16"), ("float32", "mlp", "float32"),
])
def test_updates_are_timed_in_the_precision_in_which_learners_compute(
    monkeypatch: pytest.MonkeyPatch, setting: str, network: str, precision: str
) -> None:
    """With "auto" float32 was timed, and learners then chose bfloat16."""
    config = load_config(None, [
        "env.id=CartPole-v1", f"learning.precision={setting}", f"policy.network={network}",
    ], {})
    monkeypatch.setattr(
        SharedUpdate, "measure_precisions",
        lambda self, batch_of, size, beat: PrecisionTimes("bfloat16", len(batch_of(3).actions), {}),
    )
    times = measure_updates(config, probe(config), 0.02, lambda done: None)
    assert times is not None
    assert times.precision == precision
