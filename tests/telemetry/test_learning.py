"""The figures of learning, from the records of learners that were made by hand."""

from __future__ import annotations

import numpy as np
import pytest

from rtagent.clock import NANO
from rtagent.memory.weights import WeightsInfo
from tests.desired import with_changes
from tests.telemetry.counted_run import PARAMETERS, START_NS, Run


def test_learning() -> None:
    run = Run(policy={"epsilon_start": 1.0, "epsilon_end": 0.0, "epsilon_steps": 1000})
    run.figures()
    record = run.metrics.learners[0]
    record.updates, record.samples_consumed, record.loss = 400, 12_800, 0.25
    record.applied = 400
    record.staleness_sum, record.staleness_max, record.update_ns = 800, 9, 12_500_000
    run.control.write(with_changes(run.control.desired, learning={"processes": 1}))
    record.pid = 5
    record.heartbeat_ns = record.applied_ns = START_NS
    for at_s, applied in ((1.0, 0), (3.0, 150), (4.0, 390)):
        record.applied = applied
        record.add_mark(START_NS + round(at_s * NANO))
    record.applied = 400
    run.weights.publish(np.zeros(PARAMETERS, np.float32), WeightsInfo(41, 250))
    run.roles({"role": "learner", "index": 0, "pid": 5, "state": "running", "restarts": 1})
    run.clock.advance(8.0)
    learning = run.figures().learning
    assert learning["updates"] == 400
    assert learning["updates_per_s"] == pytest.approx(50.0)
    assert learning["samples_consumed"] == 12_800
    assert learning["loss"] == 0.25
    assert learning["staleness"] == {"mean": 2.0, "max": 9}
    assert learning["weights_version"] == 41
    assert learning["workers"] == [
        {"index": 0, "pid": 5, "state": "running", "restarts": 1, "update_ms": 12.5, "applied": 400}
    ]
    run.clock.advance(100.0)
    assert run.figures().learning["updates_per_s"] is None


def test_the_exploration_rate_is_that_of_the_newest_action(run: Run) -> None:
    assert run.figures().learning["epsilon"] is None
    for worker, at_s, rate in ((0, 0.01, 0.3), (1, 0.03, 0.1), (0, 0.02, 0.2)):
        run.deposit(1, at_s, worker)
        run.metrics.inference[worker].epsilon = rate
    assert run.figures().learning["epsilon"] == 0.1


@pytest.mark.parametrize("algorithm", ["ppo", "a2c", "sac"])
def test_a_policy_that_draws_its_actions_has_no_exploration_rate(algorithm: str) -> None:
    run = Run(learning={"algorithm": algorithm, "rollout": 16})
    run.deposit(1, 0.01, 0)
    run.metrics.inference[0].epsilon = 0.3
    assert run.figures().learning["epsilon"] is None


def test_the_loss_is_that_of_the_newest_update(run: Run) -> None:
    """A learner that waits beats, too; one that has just come has no loss yet."""
    records = run.metrics.learners
    for record, applied, loss, before_ns, beat_ns in (
        (records[0], 5, 0.5, 2, 3), (records[1], 4, 0.25, 1, 1), (records[2], 0, 0.0, START_NS, 4),
    ):
        record.applied, record.loss = applied, loss
        record.applied_ns, record.heartbeat_ns = START_NS - before_ns, START_NS + beat_ns
    assert run.figures().learning["loss"] == 0.25


def test_an_evaluation_is_unknown_before_the_first(run: Run) -> None:
    record = run.metrics.evaluation
    record.mean_return, record.updates, record.weights_version = 2.5, 400, 7
    for evaluations, known in ((0, (None, None, None)), (1, (2.5, 400, 7))):
        record.evaluations = evaluations
        found = run.figures().learning["evaluation"]
        assert (found["mean_return"], found["updates"], found["weights_version"]) == known


def test_the_rate_of_updates_leaves_out_learners_that_have_left(run: Run) -> None:
    run.control.write(with_changes(run.control.desired, learning={"processes": 1}))
    records = run.metrics.learners
    for record, applied in ((records[0], 60), (records[1], 40)):
        record.heartbeat_ns = START_NS
        record.add_mark(START_NS)
        record.applied = applied
    run.clock.advance(2.0)
    assert run.figures().learning["updates_per_s"] == 30.0


def test_a_learner_that_has_just_begun_is_not_silent(run: Run) -> None:
    run.control.write(with_changes(run.control.desired, learning={"processes": 1}))
    learner = {"role": "learner", "index": 0, "pid": 5, "restarts": 0}
    # What it did before, say, was long ago.
    run.metrics.learners[0].heartbeat_ns = START_NS - 60 * NANO
    for states in ([], ["starting"]):
        run.roles(*(learner | {"state": each} for each in states))
        assert run.figures().learning["silent"] == 0
    run.roles(learner | {"state": "running"})
    run.metrics.learners[0].heartbeat_ns = START_NS
    now = run.figures().learning
    assert (now["silent"], now["updates_per_s"]) == (0, None)
    run.clock.advance(20.0)
    assert run.figures().learning["silent"] == 1


def test_a_resumed_run_is_as_far_as_its_weights() -> None:
    run = Run()
    run.weights.publish(np.zeros(PARAMETERS, np.float32), WeightsInfo(41, 250))
    run.clock.advance(1.0)
    assert run.figures().learning["updates"] == 250


def test_samples_before_a_resumed_run_are_unknown_until_a_learner_has_told_them() -> None:
    run = Run()
    assert run.figures().learning["samples_consumed"] == 0
    run.weights.publish(np.zeros(PARAMETERS, np.float32), WeightsInfo(41, 250))
    assert run.figures().learning["samples_consumed"] is None
    run.metrics.learners[0].samples_consumed = 8000
    assert run.figures().learning["samples_consumed"] == 8000
