"""A world of continuous actions, with real processes: acted in, learned from, resumed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rtagent.storage import checkpoint
from tests.conftest import Runtimes, eventually

from .test_learners import applied, in_force, learns, updates

pytestmark = pytest.mark.process

PENDULUM = (
    "env.id=Pendulum-v1", "env.rate_hz=100", "learning.learning_starts=100",
    "learning.updates_per_tick=1", "inference.processes=2", "run.tensorboard=false",
)


def test_it_acts_learns_is_evaluated_and_resumed(run: Runtimes, tmp_path: Path) -> None:
    with run(
        *PENDULUM, "learning.processes=2", "learning.prioritized=true",
        "learning.evaluation_every_s=0.5", "learning.evaluation_episodes=1",
        "policy.epsilon_steps=20",
    ) as runtime:
        eventually(lambda: min(applied(runtime)[:2]) > 20, "both learners apply")
        learns(runtime)
        world = runtime.world
        rows = world.ledger.read(0, world.ledger.newest + 1)
        acted = rows[rows["source"] == 1]["action"]
        assert acted.shape[1:] == (1,)
        assert np.abs(acted).max() <= 2.0
        assert len(np.unique(acted)) > 0.5 * len(acted)
        # Ticks without an action of the agent executed the no-op.
        assert not rows[rows["source"] == 0]["action"].any()
        progress = world.learner.progress
        assert 0 <= progress.steps - progress.actor_steps <= 8
        assert runtime.stats()["learning"]["epsilon"] == pytest.approx(0.05)
        eventually(
            lambda: world.metrics.evaluation.evaluations > 0, "it is evaluated"
        )
        answer = runtime.checkpoint()
    saved = checkpoint.load(tmp_path / "state" / "checkpoints" / answer["file"])
    assert saved.signature.network == "mlp k=1, td3"
    kinds = {name.split(".")[1] for name in saved.tensors if name.startswith("online.")}
    assert kinds == {"actor", "critics"}
    # It goes on after a restart, and with a learner more.
    with run(*PENDULUM) as runtime:
        before = runtime.world.weights.info()
        assert before.updates > 20
        in_force(runtime, processes=1)
        learns(runtime)
        progress = runtime.world.learner.progress
        assert progress.steps == progress.updates > before.updates
        assert updates(runtime) > before.updates


def test_a_random_policy_acts_by_its_own_distribution(run: Runtimes, tmp_path: Path) -> None:
    with run(
        *PENDULUM, "learning.algorithm=sac", "learning.processes=1", "policy.epsilon_steps=1",
        "learning.evaluation_every_s=0.5", "learning.evaluation_episodes=1",
    ) as runtime:
        learns(runtime)
        world = runtime.world
        eventually(lambda: world.metrics.evaluation.evaluations > 0, "it is evaluated")
        rows = world.ledger.read(0, world.ledger.newest + 1)
        acted = rows[rows["source"] == 1]["action"]
        assert np.abs(acted).max() <= 2.0
        assert np.std(acted[-50:]) > 0.0
        answer = runtime.checkpoint()
    saved = checkpoint.load(tmp_path / "state" / "checkpoints" / answer["file"])
    assert saved.signature.network == "mlp k=1, sac"
    assert "online.temperature.logarithm" in saved.tensors
