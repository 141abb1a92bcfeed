"""Several learners on shared weights, with real processes: turns, changes, deaths."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rtagent import Runtime, UserError, load_config
from tests.conftest import Runtimes, eventually, role

pytestmark = pytest.mark.process

POLE = (
    "env.id=CartPole-v1", "env.rate_hz=200", "learning.learning_starts=100", "learning.n_step=1",
    "inference.processes=1", "run.tensorboard=false",
)


def updates(runtime: Runtime) -> int:
    return int(runtime.stats()["learning"]["updates"])


def applied(runtime: Runtime) -> list[int]:
    return [int(each) for each in runtime.world.metrics.learners["applied"][:4]]


def learns(runtime: Runtime, most_s: float = 20.0, count: int = 20) -> float:
    start = updates(runtime)
    return eventually(lambda: updates(runtime) > start + count, most_s, "the learners go on")


def test_two_take_turns_on_one_set_of_weights(run: Runtimes) -> None:
    with run(*POLE, "learning.processes=2") as runtime:
        eventually(lambda: min(applied(runtime)[:2]) > 0, 30, "both have begun")
        start = applied(runtime)[:2]
        eventually(lambda: min(applied(runtime)[:2]) > max(start) + 50, 30, "50 more of each")
        first, second = (now - then for now, then in zip(applied(runtime), start, strict=False))
        stats = runtime.stats()["learning"]
        # Strictly in turn, but for a lease that a crowded machine lets run out.
        assert abs(first - second) <= 2 + 2 * stats["turns_expired"]
        assert stats["updates"] == pytest.approx(sum(applied(runtime)), abs=40)
        assert stats["staleness"]["max"] <= 1 + stats["turns_expired"]
        assert 0.5 < stats["staleness"]["mean"] <= 1.0
        assert stats["samples_consumed"] == pytest.approx(32 * stats["updates"], rel=0.2)


def test_the_number_of_learners_changes_while_they_learn(run: Runtimes) -> None:
    with run(*POLE, "learning.processes=1") as runtime:
        learns(runtime)
        assert runtime.set_learning(processes=3)["processes"] == 3
        eventually(lambda: min(applied(runtime)[:3]) > 5, 30, "all three apply")
        assert runtime.set_learning(processes=0)["processes"] == 0
        before = updates(runtime)
        info = runtime.world.weights.info()
        assert info.updates == before
        assert runtime.stats()["learning"]["processes"] == 0
        assert runtime.set_learning(processes=1)["processes"] == 1
        learns(runtime)
        assert updates(runtime) > before


def test_pausing_and_the_size_of_a_batch(run: Runtimes) -> None:
    with run(*POLE, "learning.processes=2") as runtime:
        learns(runtime)
        assert runtime.set_learning(paused=True)["paused"] is True
        eventually(lambda: still(runtime), 10, "nobody updates")
        assert runtime.set_learning(paused=False, batch_size=8)["batch_size"] == 8
        learns(runtime)
        stats = runtime.stats()["learning"]
        assert stats["batch_size"] == 8


def still(runtime: Runtime) -> bool:
    before = updates(runtime)
    try:
        eventually(lambda: updates(runtime) > before, 0.5, "another update")
    except AssertionError:
        return True
    return False


def test_a_killed_learner_stops_nobody_who_comes_first(run: Runtimes) -> None:
    orders = ("learning.processes=2", "learning.order=first-come", "learning.lease_s=600")
    with run(*POLE, *orders) as runtime:
        eventually(lambda: min(applied(runtime)[:2]) > 20, 30, "both apply")
        for index in (0, 1, 0):
            pid = role(runtime, f"learner {index}")["pid"]
            before = applied(runtime)[1 - index]
            os.kill(pid, signal.SIGKILL)
            eventually(
                lambda other=1 - index, start=before: applied(runtime)[other] > start + 10,
                30, "the other one goes on, and does not wait for a lease to end",
            )
            eventually(
                lambda i=index, old=pid: role(runtime, f"learner {i}").get("pid") not in (old, None)
                and role(runtime, f"learner {i}")["state"] == "running",
                20, "it is replaced",
            )
        flat = np.empty(runtime.world.blueprint.parameters, np.float32)
        assert runtime.world.weights.read(flat) is not None
        assert np.isfinite(flat).all()


def test_a_stopped_learner_loses_its_turn_and_then_its_life(run: Runtimes) -> None:
    with run(*POLE, "learning.processes=2", "learning.lease_s=0.3") as runtime:
        eventually(lambda: min(applied(runtime)[:2]) > 20, 30, "both apply")
        pid = role(runtime, "learner 0")["pid"]
        before = applied(runtime)[1]
        os.kill(pid, signal.SIGSTOP)
        took = eventually(lambda: applied(runtime)[1] > before + 10, 12, "the other goes on")
        # Stopped inside the lock, only its death a few seconds later frees the others.
        assert took < 9.0
        eventually(lambda: role(runtime, "learner 0").get("restarts") == 1, 15, "it is replaced")


def test_a_checkpoint_is_written_when_asked_for(run: Runtimes, tmp_path: Path) -> None:
    with run(*POLE, "learning.processes=2") as runtime:
        learns(runtime)
        answer = runtime.checkpoint()
        assert (tmp_path / "state" / "checkpoints" / answer["file"]).exists()
        assert 0 < answer["updates"] <= updates(runtime)
        assert answer["replay"] is False
        runtime.set_learning(processes=0)
        with pytest.raises(UserError, match="no learner runs"):
            runtime.checkpoint()


def test_adam_and_target_survive_a_restart_of_the_daemon(tmp_path: Path) -> None:
    settings = [f"run.state_dir={tmp_path}", *POLE, "learning.processes=2", "run.seed=3"]
    with Runtime(load_config(None, settings, {})) as runtime:
        runtime.wait_ready(60)
        learns(runtime)
    with Runtime(load_config(None, [*settings, "learning.learning_starts=9000"], {})) as runtime:
        runtime.wait_ready(60)
        eventually(lambda: runtime.world.learner.number >= 0, 20, "the state is there")
        state: Any = runtime.world.learner
        assert state.progress.updates > 20
        assert state.progress.steps == state.progress.updates
        assert np.abs(state.current.square).sum() > 0
        assert np.abs(state.current.weights - state.target).sum() > 0
