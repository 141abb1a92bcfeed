"""A learner leaves checkpoints, and one that begins goes on from them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rtagent.clock import MonotonicClock
from rtagent.learning import checkpointing, learner
from rtagent.learning.beginning import publish_initial
from rtagent.memory.weights import WeightsInfo
from rtagent.storage import checkpoint as checkpoints
from tests.learning.learner_run import Start


def test_checkpoints_come_in_their_period_and_so_many_are_kept(start: Start) -> None:
    run = start(ticks=0)
    few = run.config.run.model_copy(update={"keep_checkpoints": 2})
    run.config = run.config.model_copy(update={"run": few})
    assert run.learn(until_s=350.0).record.checkpoints == 3
    assert len(list(run.checkpoint_dir.glob("checkpoint-*"))) == 2


def test_a_checkpoint_that_cannot_be_written_does_not_stop_learning(
    start: Start, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    run = start(ticks=0, folder="file").learn(until_s=350.0)
    assert run.record.checkpoint_failures == 3
    assert {kind for kind, _ in run.events} == {"checkpoint_failed"}


def test_a_checkpoint_for_which_there_is_no_memory_does_not_stop_learning(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def ask_for(count: int) -> None:
        asked.append(count)
        if len(asked) < 3:
            raise MemoryError("not so many bytes" if len(asked) == 1 else "")

    monkeypatch.setattr(checkpointing, "ask_for", ask_for)
    run = start(ticks=0).learn(until_s=350.0)
    assert (run.record.checkpoint_failures, run.record.checkpoints) == (2, 1)
    reasons = [each["reason"] for each in run.events_of("checkpoint_failed")]
    assert reasons == ["not so many bytes", "out of memory"]
    # Weights, target network, both moments; once as copied, twice as written.
    assert asked == [4 * 4 * run.blueprint.learned_parameters * 3] * 3


def test_a_request_that_comes_while_a_checkpoint_fails_is_answered_by_the_next_one(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = start(ticks=0)
    save = checkpoints.save

    def fail(*args: Any, **kwargs: Any) -> Path:
        run.change_settings(checkpoint=2)
        monkeypatch.setattr(checkpoints, "save", save)
        raise checkpoints.CheckpointError("the disk is full")

    monkeypatch.setattr(checkpoints, "save", fail)
    run.change_settings(checkpoint=1)
    run.learn(until_s=110.0)
    (failed,), (written, *_) = run.events_of("checkpoint_failed"), run.events_of("checkpoint")
    assert failed == {"reason": "the disk is full", "request": 1}
    assert written["request"] == 2


def test_a_learner_that_writes_a_checkpoint_is_passed_over(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = start(ticks=60)
    other = start(ticks=0, world=writer.world)
    other.index, other.record = 1, writer.world.metrics.learners[1]
    for run in (writer, other):
        run.change_settings(learner_ring=[0, 1], learning={"processes": 2})
    other.clock = MonotonicClock()
    second, entered = learner.Learner(other), []
    save = checkpoints.save

    def slowly(*args: Any, **kwargs: Any) -> Path:
        for _ in range(3):
            entered.append(second._turns.enter())
            second._turns.leave()
        return save(*args, **kwargs)

    monkeypatch.setattr(checkpoints, "save", slowly)
    writer.learn(0)
    assert (entered, writer.world.turns.expired) == ([True] * 3, 0)
    assert not any(each.writing for each in writer.world.metrics.learners)
    # It takes turns again.
    assert second._turns._ring() == [0, 1]


def test_weights_from_a_cluster_that_are_newer_than_its_state_stay_in_use(start: Start) -> None:
    run = start()
    made, _ = run.begin()
    newer, weights = run.published() + 1.0, run.world.weights
    weights.publish(newer, WeightsInfo(version=2, updates=16))
    made.new_checkpoint_writer().write()
    assert weights.info() == WeightsInfo(version=2, updates=16)
    np.testing.assert_array_equal(run.published(), newer)
    assert checkpoints.load(run.newest).counters.updates == 0


def test_a_checkpoint_does_not_publish_what_is_published(start: Start) -> None:
    run = start(ticks=0)
    made, _ = run.begin()
    for _ in range(2):
        made.new_checkpoint_writer().write()
        assert run.world.weights.info() == WeightsInfo(version=1, updates=0)
    assert checkpoints.load(run.newest).counters.weights_version == 1


def test_a_new_run_resumes_from_the_checkpoint(start: Start) -> None:
    first = start().learn(20)
    second = start(ticks=0, resume=first.newest).learn(0)
    np.testing.assert_array_equal(second.published(), first.published())
    old, new = first.world.weights.info(), second.world.weights.info()
    assert new.updates == 20
    assert new.version > old.version
    assert second.record.samples_consumed == 80


def test_a_restarted_learner_goes_on_from_the_shared_weights(start: Start) -> None:
    first = start(folder="a").learn(20)
    later = start(ticks=0, folder="later", world=first.world).learn(30)
    before, info = first.published(), first.world.weights.info()
    second = start(ticks=0, folder="b", world=first.world, resume=first.newest).learn(0)
    np.testing.assert_array_equal(second.published(), before)
    assert second.world.weights.info().updates == 30
    assert second.world.weights.info().version == info.version
    assert second.record.samples_consumed == 120
    tensors = checkpoints.load(second.newest).tensors
    for name, values in checkpoints.load(later.newest).tensors.items():
        np.testing.assert_array_equal(tensors[name], values)
    assert int(tensors["optimizer.steps"]) == 30


def test_a_checkpoint_of_another_network_is_refused(start: Start) -> None:
    first = start(ticks=0).learn(0)
    other = start(ticks=0, resume=first.newest)
    other.world.blueprint = other.blueprint = replace(other.blueprint, network="mlp k=9")
    with pytest.raises(checkpoints.CheckpointError, match="belongs to the network mlp k=1"):
        other.learn(0)


@pytest.mark.parametrize(("name", "value"), [
    ("optimizer.steps", -1), ("optimizer.actor_skipped", 1), ("optimizer.loss_scale", [99, 0]),
])
def test_a_checkpoint_with_counts_that_no_learner_writes_is_refused(
    start: Start, tmp_path: Path, name: str, value: Any
) -> None:
    """With -1 steps Adam divided by 0 in the first update."""
    saved = checkpoints.load(start(ticks=0).learn(0).newest)
    forged = replace(saved, tensors={**saved.tensors, name: np.array(value, np.int64)})
    path = checkpoints.save(tmp_path / "forged", forged)
    with pytest.raises(checkpoints.CheckpointError, match="nothing can be learned on the checkp"):
        start(ticks=0, folder="next", resume=path).learn(0)


def test_where_nobody_learns_the_first_weights_are_published(start: Start) -> None:
    run = start()
    publish_initial(run.world, run.config, None)
    assert run.world.weights.info() == WeightsInfo(version=1, updates=0)
    assert run.published().std() > 0.01
    run.learn(20)
    acting = start(ticks=0)
    publish_initial(acting.world, acting.config, run.newest)
    assert acting.world.weights.info().updates == 20
    np.testing.assert_array_equal(acting.published(), run.published())


# ---- continuous actions


def test_an_actor_and_its_critics_learn_and_resume(start: Start) -> None:
    run = start(continuous=True).learn(21)
    assert run.record.skipped == 0
    assert run.world.weights.info() == WeightsInfo(version=6, updates=21)
    state, acting = run.world.learner, run.blueprint.parameters
    assert (state.progress.steps, state.progress.actor_steps) == (21, 20)
    np.testing.assert_array_equal(run.published(), state.current.weights[:acting])
    assert np.abs(state.current.square[:acting]).sum() > 0
    assert np.abs(state.target - state.current.weights).sum() > 0
    # A daemon begins anew, with another learner in it.
    later = start(ticks=0, continuous=True, resume=run.newest).learn(0)
    np.testing.assert_array_equal(later.published(), run.published())
    again = later.world.learner
    assert again.progress == state.progress
    for name in ("weights", "mean", "square"):
        np.testing.assert_array_equal(getattr(again.current, name), getattr(state.current, name))
    np.testing.assert_array_equal(again.target, state.target)


def test_critics_begin_alike_in_every_learner(start: Start) -> None:
    starts = []
    for index in (0, 1):
        run = start(ticks=0, continuous=True, folder=str(index))
        publish_initial(run.world, run.config, None)
        run.index = index
        run.learn(0)
        starts.append(run.world.learner.current.weights.copy())
        np.testing.assert_array_equal(starts[-1][: run.blueprint.parameters], run.published())
    np.testing.assert_array_equal(*starts)
