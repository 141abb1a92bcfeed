"""The figures of learning, added up from the records that the learners write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rtagent.clock import NANO
from rtagent.config import LEARNING_PRECISIONS
from rtagent.memory.process_metrics import PLACEMENTS, LearnerRecord
from rtagent.memory.world import World
from rtagent.r3.controller import batch_in_force
from rtagent.telemetry.figures import learning

SILENT_S = 10.0
"""A learner that has not beaten for so long is silent, and has no rate of updates."""
RATE_OVER_NS = 5 * NANO


def learning_figures(
    world: World, roles: Sequence[Mapping[str, Any]], now: float
) -> learning.Learning:
    """What the learners have done; `roles` are theirs in the status, `now` is in seconds."""
    records = world.metrics.learners
    desired = world.control.desired
    info = world.weights.info()
    # Before a learner has taken over a resumed run, its weights say how far it is.
    updates = max(*(each.updates for each in records), info.updates if info else 0)
    applied = sum(each.applied for each in records)
    samples = max(each.samples_consumed for each in records)
    newest = max(records, key=lambda each: each.applied_ns)
    numbers = [each.precision for each in records if each.precision]
    return learning.Learning(
        processes=desired.learning.processes,
        silent=sum(
            role["state"] != "starting" and _silent(records[role["index"]], now)
            for role in roles
        ),
        order=desired.learning.order, paused=desired.learning.paused,
        updates=updates,
        updates_per_s=_update_rate(world, now),
        samples_consumed=samples if samples or applied or not updates else None,
        batch_size=batch_in_force(world.horizon.read(), desired),
        learning_rate=desired.learning.step_size(updates),
        loss=newest.loss if applied else None,
        epsilon=_exploration_rate(world),
        staleness=learning.Staleness(
            mean=sum(each.staleness_sum for each in records) / applied if applied else None,
            max=max(each.staleness_max for each in records) if applied else None,
        ),
        weights_version=info.version if info else None,
        skipped=sum(each.skipped for each in records),
        precision=LEARNING_PRECISIONS[numbers[0] - 1] if numbers else None,
        loss_scale=newest.loss_scale or None,
        overflows=sum(each.overflows for each in records),
        dropped=sum(each.dropped for each in records),
        turns_expired=world.turns.expired,
        placement=PLACEMENTS[newest.placement],
        evaluation=_evaluation_figures(world),
        checkpoints=sum(each.checkpoints for each in records),
        checkpoint_failures=sum(each.checkpoint_failures for each in records),
        workers=[
            learning.LearnerWorker(
                index=role["index"], pid=role["pid"], state=role["state"],
                restarts=role["restarts"], applied=records[role["index"]].applied,
                update_ms=records[role["index"]].update_ns / 1e6 or None,
            )
            for role in roles
        ],
    )


def _update_rate(world: World, now: float) -> float | None:
    """Updates per second, lately, of the learners that beat; None if none does."""
    records = world.metrics.learners
    rates = [
        record.applied_rate(round(now * NANO), RATE_OVER_NS)
        for record in records[: world.control.desired.learning.processes]
        if not _silent(record, now)
    ]
    known = [rate for rate in rates if rate is not None]
    return sum(known) if known else None


def _exploration_rate(world: World) -> float | None:
    """The rate of the newest registered action; unknown before the first, and of a policy that
    draws its actions, where the rate says nothing.
    """
    config = world.config.learning
    if config.on_policy or config.algorithm == "sac":
        return None
    records = world.metrics.inference[: world.control.desired.rows]
    newest = [
        (int(each["registered_ns"]), record.epsilon)
        for record in records
        for each in record.registrations.newest(1)
    ]
    return max(newest)[1] if newest else None


def _evaluation_figures(world: World) -> learning.Evaluation:
    """Figures of the greedy policy in a paused world; unknown before the first evaluation."""
    record = world.metrics.evaluation
    known = record.evaluations > 0
    return learning.Evaluation(
        evaluations=record.evaluations, episodes=record.episodes,
        mean_return=record.mean_return if known else None,
        updates=record.updates if known else None,
        weights_version=record.weights_version if known else None,
    )


def _silent(record: LearnerRecord, now: float) -> bool:
    return now * NANO - record.heartbeat_ns > SILENT_S * NANO
