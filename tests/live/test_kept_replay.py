"""The replay outlives the daemon; evaluation and records beside a run; with real processes."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from rtagent.telemetry.learning_curve import read_episodes
from tests.conftest import Runtimes, eventually, role

from .test_learners import POLE, learns

pytestmark = pytest.mark.process


def test_a_restored_run_goes_on_with_the_same_replay(run: Runtimes) -> None:
    settings = (*POLE, "learning.processes=1", "replay.capacity=5000", "learning.prioritized=true")
    saving = (*settings, "run.checkpoint_replay=true")
    with run(*saving) as runtime:
        learns(runtime)
        answer = runtime.checkpoint(replay=True)
        assert answer["replay"] is True
        world = runtime.world
        middle = world.ledger.newest
    frames, rows = world.frames, world.ledger.read(0, middle)
    newest, pixels = world.ledger.newest, frames.frames[:middle].copy()
    with run(*saving) as runtime:
        restored = runtime.world
        assert restored.first_tick == newest + 1
        np.testing.assert_array_equal(restored.ledger.read(0, middle), rows)
        np.testing.assert_array_equal(restored.frames.frames[:middle], pixels)
        seam = restored.ledger.read(newest, newest + 2)
        assert seam["flags"][0]
        assert seam["episode"][1] == seam["episode"][0] + 1
        stats = runtime.stats()
        assert stats["clock"]["ticks"] < stats["replay"]["size"]
        eventually(
            lambda: 75 < (runtime.stats()["clock"]["rate_hz"] or 0.0) < 125,
            "the rate is counted from the first tick of this run",
        )
        learns(runtime)
        kept = restored.priorities.values(0, middle)
        assert (kept > 0.0).sum() > middle // 2
    # Saved in vain is no error.
    with run(*settings) as runtime:
        assert runtime.world.first_tick == 0


def test_the_policy_is_evaluated_beside_the_run_which_is_recorded(run: Runtimes) -> None:
    with run(
        *POLE, "learning.processes=1", "learning.evaluation_every_s=0.5",
        "learning.evaluation_episodes=2", "run.tensorboard=true",
    ) as runtime:
        eventually(
            lambda: runtime.stats()["learning"]["evaluation"]["evaluations"] >= 2, "twice"
        )
        figures = runtime.stats()["learning"]["evaluation"]
        # The one is counted a moment before the other.
        assert 0 <= figures["episodes"] - 2 * figures["evaluations"] <= 2
        assert figures["mean_return"] >= 1.0
        assert role(runtime, "evaluation")["state"] == "running"
        eventually(lambda: runtime.stats()["episodes"]["count"] > 3, "episodes end")
        learns(runtime)
        count, folder = runtime.stats()["episodes"]["count"], runtime.run_dir
        eventually(
            lambda: len(read_episodes(folder / "episodes.csv").returns) >= count,
            "they are recorded",
        )
    with open(folder / "episodes.csv", newline="") as file:
        episodes = list(csv.DictReader(file))
    assert len(episodes) >= count
    assert list(episodes[0]) == ["tick", "length", "return", "seconds"]
    assert list((folder / "tensorboard").glob("events.out.tfevents.*"))
