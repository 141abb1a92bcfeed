"""What `rtagent plan` measures."""

from __future__ import annotations

import pytest

from rtagent.cli import forward_time
from rtagent.cli.forward_time import LEAST_PASSES, LEAST_TAKEOVERS, measure_acting
from rtagent.config import Config
from rtagent.config_sources import load_config
from rtagent.evaluation.probe import probe
from tests.conftest import make_blueprint


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_an_action_takes_more_than_its_forward_pass(env: str) -> None:
    config = load_config(overrides=[f"env.id={env}"])
    told: list[float] = []
    measured = measure_acting(config, probe(config), 0.05, told.append)
    assert len(measured.forward_s) == len(measured.inference_s) == len(told) >= LEAST_PASSES
    assert (measured.inference_s > measured.forward_s).all()
    assert (measured.forward_s > 0.0).all()
    # A thread that an earlier test has left may compute, too.
    assert 0.0 < measured.busy_s < 2.0 * measured.forward_s.mean()
    assert len(measured.takeover_s) >= LEAST_TAKEOVERS
    assert (measured.takeover_s > 0.0).all()
    assert told[-1] == 1.0


def test_injected_latency_is_waited_out_not_added() -> None:
    config = load_config(overrides=["env.id=CartPole-v1", "inference.injected_latency_ms=9000"])
    measured = measure_acting(config, probe(config), 0.01, lambda done: None)
    assert measured.inference_s.tolist() == [9.0] * len(measured.forward_s)


def test_updates_alone_are_measured_with_the_memory_of_a_learner(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    """An inference process gives freed memory back, and a learner keeps it."""
    done: list[str] = []
    for name in ("measure_acting", "keep_freed_memory", "measure_updates"):
        monkeypatch.setattr(forward_time, name, lambda *_, name=name: done.append(name))
    forward_time._measure_here(Config(), make_blueprint(), 0.1, print)
    assert done == ["measure_acting", "keep_freed_memory", "measure_updates"]
