"""A daemon that acts and learns on a GPU, with real processes."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from rtagent.storage import checkpoint
from tests.conftest import Runtimes, eventually, role
from tests.live.test_learners import POLE, each_applies, in_force, learns

pytestmark = [pytest.mark.gpu, pytest.mark.process]

SETTINGS = (*POLE, "policy.device=cuda", "learning.device=cuda", "learning.updates_per_tick=0")


def test_acting_and_learning_on_a_gpu_survive_deaths_and_changes(
    run: Runtimes, tmp_path: Path
) -> None:
    with run(*SETTINGS, "learning.processes=1") as runtime:
        learns(runtime)
        acted = runtime.world.metrics.inference[0]
        for name in ("learner 0", "inference 0"):
            os.kill(role(runtime, name)["pid"], signal.SIGKILL)
            before = acted.inferences
            eventually(lambda n=before: acted.inferences > n + 10, "acting goes on")
            learns(runtime)
        in_force(runtime, processes=2)
        each_applies(runtime, 2, 5)
        in_force(runtime, processes=1)
        learns(runtime)
        assert runtime.stats()["learning"]["skipped"] == 0
    newest = checkpoint.newest(tmp_path / "state" / "checkpoints")
    assert newest is not None
    learned = runtime.world.metrics.learners[0].updates
    assert checkpoint.load(newest).counters.updates == learned
