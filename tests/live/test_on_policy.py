"""PPO with real processes: what is executed carries its probability, and is learned from."""

from __future__ import annotations

import numpy as np
import pytest

from rtagent.staggering.arbiter import Source
from tests.conftest import Runtimes

from .test_learners import learns

pytestmark = pytest.mark.process


def test_it_learns_from_what_its_policy_has_done(run: Runtimes) -> None:
    with run(
        "env.id=CartPole-v1", "env.rate_hz=200", "env.default_action=repeat",
        "learning.processes=1", "learning.algorithm=ppo", "learning.rollout=32",
        "learning.epochs=2", "learning.learning_starts=32", "learning.publish_every=4",
        "inference.processes=2", "run.tensorboard=false",
    ) as runtime:
        learns(runtime, count=10)
        world = runtime.world
        rows = world.ledger.read(0, world.ledger.newest + 1)
    drawn = rows["source"] != Source.DEFAULT
    # At first both actions are about equally probable.
    assert np.exp(rows["log_probability"][drawn][:50]) == pytest.approx(0.5, abs=0.1)
    assert set(rows["action"][drawn]) == {0, 1}
    assert not rows["log_probability"][~drawn].any()
