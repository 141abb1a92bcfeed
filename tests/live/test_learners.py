"""Several learners on shared weights, with real processes: turns, changes, deaths, a restart."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rtagent import Runtime, UserError
from rtagent.live_config import FIELDS
from rtagent.processes import restart_policy
from rtagent.storage import checkpoint
from rtagent.supervisor.commands import NotInForce
from tests.conftest import Runtimes, eventually, role, started

pytestmark = pytest.mark.process

POLE = (
    "env.id=CartPole-v1", "env.rate_hz=100", "learning.learning_starts=100", "learning.n_step=1",
    "learning.updates_per_tick=1", "inference.processes=1", "run.tensorboard=false",
)
"""Its learners leave the cores to others: what is tested here is no speed."""


def updates(runtime: Runtime) -> int:
    return int(runtime.stats()["learning"]["updates"])


def applied(runtime: Runtime) -> list[int]:
    return [each.applied for each in runtime.world.metrics.learners[:4]]


def staleness(runtime: Runtime) -> int:
    """Of all updates together."""
    return int(sum(each.staleness_sum for each in runtime.world.metrics.learners[:4]))


def learns(runtime: Runtime, count: int = 20) -> float:
    start = updates(runtime)
    return eventually(lambda: updates(runtime) > start + count, "the learners go on")


def each_applies(runtime: Runtime, learners: int, count: int) -> float:
    """Wait until each of so many learners has applied so many more updates."""
    start = applied(runtime)[:learners]
    return eventually(
        lambda: all(now > then + count for now, then in zip(applied(runtime), start, strict=False)),
        f"{count} more of each",
    )


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    """One run for all tests here that change it and go on."""
    settings = (*POLE, "learning.processes=2", "learning.lease_s=600")
    with started(tmp_path_factory.mktemp("pole"), *settings) as runtime:
        yield runtime


def in_force(runtime: Runtime, **changes: Any) -> dict[str, Any]:
    """Change settings of learning: a learner that must begin first takes its time beside others."""
    settings: dict[str, Any] = {}

    def changed() -> bool:
        try:
            settings.update(runtime.set_learning(**changes))
        except NotInForce:
            return False
        return True

    eventually(changed, f"{changes} in force")
    return settings


@pytest.fixture
def pair(shared: Runtime) -> Runtime:
    """Two learners that take turns, whatever the test before has left."""
    in_force(
        shared, processes=2, paused=False, batch_size=32, order="round-robin",
        updates_per_tick=1,
    )
    each_applies(shared, 2, 5)
    return shared


def test_two_take_turns_on_one_set_of_weights(pair: Runtime) -> None:
    start, before = counted(pair)
    stale = staleness(pair)
    # Only who does not wait for ticks waits for the other.
    pair.set_learning(paused=False, updates_per_tick=0)
    each_applies(pair, 2, 50)
    now, stats = counted(pair)
    stale = staleness(pair) - stale
    first, second = (later - earlier for later, earlier in zip(now, start, strict=True))
    # Strictly in turn, but for a lease that a crowded machine lets run out.
    assert abs(first - second) <= 2 + 2 * (stats["turns_expired"] - before["turns_expired"])
    assert stats["updates"] == pytest.approx(sum(now), abs=40)
    assert stats["staleness"]["max"] <= 1 + stats["turns_expired"]
    assert 0.5 < stale / (first + second) <= 1.0
    # Of the whole run.
    mean = staleness(pair) / sum(applied(pair))
    assert stats["staleness"]["mean"] == pytest.approx(mean, rel=0.2)
    assert stats["samples_consumed"] == pytest.approx(32 * stats["updates"], rel=0.2)


def test_the_number_of_learners_changes_while_they_learn(pair: Runtime) -> None:
    settings = in_force(pair, processes=3)
    assert list(settings) == list(FIELDS["learning"])
    assert (settings["processes"], settings["paused"], settings["batch_size"]) == (3, False, 32)
    each_applies(pair, 3, 5)
    assert pair.set_learning(processes=0)["processes"] == 0
    before = updates(pair)
    assert pair.world.weights.info().updates == before
    assert pair.stats()["learning"]["processes"] == 0
    with pytest.raises(UserError, match="no learner runs"):
        pair.checkpoint()
    assert in_force(pair, processes=1)["processes"] == 1
    gone = applied(pair)[1:3]
    learns(pair)
    assert updates(pair) > before
    assert applied(pair)[1:3] == gone


def test_pausing_and_the_size_of_a_batch(pair: Runtime) -> None:
    assert pair.set_learning(paused=True)["paused"] is True
    # Gradients that were under way at the change are applied; after that none is.
    eventually(lambda: still(pair), "nobody updates")
    assert pair.set_learning(paused=False, batch_size=8)["batch_size"] == 8
    learns(pair)
    assert pair.stats()["learning"]["batch_size"] == 8
    assert pair.status()["config"]["learning"]["batch_size"] == 8


def still(runtime: Runtime) -> bool:
    before = updates(runtime)
    time.sleep(0.5)
    return updates(runtime) == before


def counted(runtime: Runtime) -> tuple[list[int], dict[str, Any]]:
    """What each of two learners has applied, and the figures, while neither applies anything."""
    runtime.set_learning(paused=True)
    eventually(lambda: still(runtime), "nobody updates")
    return applied(runtime)[:2], runtime.stats()["learning"]


def test_a_checkpoint_is_written_when_asked_for(pair: Runtime) -> None:
    answer = pair.checkpoint()
    assert answer["path"].exists()
    assert 0 < answer["updates"] <= updates(pair)
    assert answer["replay"] is False
    assert pair.checkpoint(replay=True)["replay"]
    assert any((answer["path"].parents[1] / "replay").iterdir())


def test_a_killed_learner_does_not_stop_the_other_without_turns(pair: Runtime) -> None:
    pair.set_learning(order="first-come")
    for index in (0, 1, 0):
        each_applies(pair, 2, 5)
        pid = role(pair, f"learner {index}")["pid"]
        before = applied(pair)[1 - index]
        os.kill(pid, signal.SIGKILL)
        eventually(
            lambda other=1 - index, start=before: applied(pair)[other] > start + 10,
            "the other one goes on, and does not wait for a lease to end",
        )
        eventually(
            lambda i=index, old=pid: role(pair, f"learner {i}").get("pid") not in (old, None)
            and role(pair, f"learner {i}")["state"] == "running",
            "it is replaced",
        )
    flat = np.empty(pair.world.blueprint.parameters, np.float32)
    assert pair.world.weights.read(flat) is not None
    assert np.isfinite(flat).all()


def test_a_stopped_learner_loses_its_turn_and_is_then_replaced(run: Runtimes) -> None:
    with run(*POLE, "learning.processes=2", "learning.lease_s=0.3") as runtime:
        each_applies(runtime, 2, 5)
        pid = role(runtime, "learner 0")["pid"]
        before = applied(runtime)[1]
        os.kill(pid, signal.SIGSTOP)
        # Stopped inside the lock, only its death a few seconds later frees the others.
        eventually(lambda: applied(runtime)[1] > before + 10, "the other goes on")
        eventually(lambda: role(runtime, "learner 0").get("restarts", 0) >= 1, "it is replaced")


@pytest.mark.parametrize("processes", [0, 1])
def test_what_a_dead_learner_has_learned_is_kept(
    run: Runtimes, processes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FIRST_PAUSE_S", "LONGEST_PAUSE_S"):
        monkeypatch.setattr(restart_policy, name, 3600.0)
    with run(*POLE, "learning.processes=1") as runtime:
        learns(runtime)
        os.kill(role(runtime, "learner 0")["pid"], signal.SIGKILL)
        eventually(lambda: role(runtime, "learner 0")["state"] == "backoff", "it has died")
        learned = runtime.world.learner.progress.updates
        if not processes:
            runtime.set_learning(processes=0)
    newest = checkpoint.newest(tmp_path / "state" / "checkpoints")
    assert newest is not None
    assert checkpoint.load(newest).counters.updates == learned


def test_new_weights_act_and_the_learners_state_survives_a_restart(run: Runtimes) -> None:
    settings = (*POLE, "learning.processes=2", "run.seed=3", "run.checkpoint_every_s=2")
    with run(*settings) as runtime:
        learns(runtime)
        seen = runtime.world.metrics.inference[0]
        version = seen.weights_version
        eventually(lambda: seen.weights_version > version, "new weights act")
        eventually(lambda: runtime.stats()["learning"]["checkpoints"] >= 1, "a checkpoint")
    with run(*settings, "learning.learning_starts=9000") as runtime:
        assert runtime.stats()["learning"]["weights_version"] > version
        eventually(lambda: runtime.world.learner.number, "the state is there")
        state: Any = runtime.world.learner
        assert state.progress.updates > 20
        assert state.progress.steps == state.progress.updates
        assert np.abs(state.current.square).sum() > 0
        assert np.abs(state.current.weights - state.target).sum() > 0


def test_acting_and_learning_by_turns_survive_each_others_death(run: Runtimes) -> None:
    by_turns = ("inference.algorithm=sequential-infer-learn", "learning.processes=1")
    settings = (*POLE, *by_turns, "learning.updates_per_tick=0", "learning.lease_s=0.5")
    with run(*settings) as runtime:
        learns(runtime)
        shared, acted = runtime.world.alternation, runtime.world.metrics.inference[0]
        # One attempt for each action: learning does not run ahead of acting.
        assert updates(runtime) <= shared.answered <= shared.permitted <= acted.inferences
        for name in ("learner 0", "inference 0"):
            victim, before = role(runtime, name)["pid"], acted.inferences
            # A stopped process is as silent as a dead one, and is noticed later.
            os.kill(victim, signal.SIGSTOP if name == "learner 0" else signal.SIGKILL)
            eventually(lambda n=before: acted.inferences > n + 1, "acting goes on")
            # Where that took long, the supervisor has ended it.
            with suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
            learns(runtime)
