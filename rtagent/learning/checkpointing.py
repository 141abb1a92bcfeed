"""When a learner writes checkpoints, and which events it sends about them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rtagent.files.pruning import MIB
from rtagent.learning import state as states
from rtagent.learning.out_of_memory import ask_for
from rtagent.learning.shared_update import SharedUpdate
from rtagent.memory.process_metrics import LearnerRecord, ProcessMetrics
from rtagent.memory.turns import TurnTaker
from rtagent.storage import checkpoint as checkpoints
from rtagent.storage.signature import signature
from rtagent.telemetry import run_record

if TYPE_CHECKING:
    from rtagent.processes.worker import WorkerContext

COPIES = 3
"""Copies of the learned state in memory while it is written: ours, and two of safetensors."""
LIVE_EPISODES = 20
"""The number of newest episodes whose mean return is the score if there are no evaluations."""


class CheckpointWriter:
    """Writes the checkpoints of a run, in the learner with the lowest number.

    Args:
        context: of the worker process.
        update: holds the learned state.
        turns: give the apply lock.
    """

    def __init__(
        self, context: WorkerContext[LearnerRecord], update: SharedUpdate, turns: TurnTaker
    ) -> None:
        self._context, self._update, self._turns = context, update, turns
        self._signature = signature(context.config, context.blueprint)
        self._every_s = context.config.run.checkpoint_every_s
        self._next = context.clock.now() + self._every_s

    @property
    def due(self) -> bool:
        """Whether the period is over, or a checkpoint was requested."""
        return is_requested(self._context) or self._context.clock.now() >= self._next

    def refuse(self, reason: str) -> None:
        """Report that a checkpoint that was due is not written."""
        self._fail(self._context.desired.checkpoint, reason)

    def write(self) -> None:
        """Write a checkpoint if this learner is the one that writes them; a failure is an event."""
        context, record = self._context, self._context.record
        if context.index != min(context.desired.learner_ring, default=0):
            return
        asked = context.desired.checkpoint
        context.beat()
        started = context.clock.now()
        try:
            path, updates = self._save()
        except (checkpoints.CheckpointError, MemoryError) as error:
            # Python's own MemoryError has no text.
            self._fail(asked, str(error) or "out of memory")
        else:
            seconds = context.clock.now() - started
            record.checkpoints += 1
            self._update.state.checkpoints.updates = updates
            context.event(
                "checkpoint", file=path.name, updates=updates, request=asked,
                seconds=round(seconds, 3),
            )
            context.world.learner.checkpoints.served = asked
            self._begin_period()
        finally:
            record.writing = 0

    def _fail(self, asked: int, reason: str) -> None:
        report_failure(self._context, asked, reason)
        self._begin_period()

    def _begin_period(self) -> None:
        self._next = self._context.clock.now() + self._every_s
        self._context.beat()

    def _save(self) -> tuple[Path, int]:
        """Save the shared state, its weights published; returns the file, and its updates.

        Weights that are published already are not published again: an engine would convert them
        once more.
        The state of a cluster's learner may come after weights that are newer; those stay in use.
        """
        context, update = self._context, self._update
        # If it gets no memory, safetensors ends the process.
        ask_for(COPIES * states.snapshot_bytes(update.state))
        with self._turns.hold():
            update.publish_if_newer()
            snapshot, version = states.take(update.state), update.weights.header.version
        progress = snapshot.progress
        context.beat()
        context.record.writing = 1
        arrays = states.to_arrays(
            snapshot, context.blueprint.learned_tensors, update.algorithm.network
        )
        # In place of the settings that the run was started with, those in force now.
        settings = {"config": context.world.status.read().get("config", {})}
        saved = checkpoints.Checkpoint(
            self._signature, checkpoints.Counters(progress.updates, progress.samples, version),
            arrays, score(context.world.metrics), run_record.read(context.run_dir) | settings,
        )
        limits = context.config.run
        path = checkpoints.save(
            context.checkpoint_dir, saved, keep=limits.keep_checkpoints,
            most_bytes=limits.checkpoints_mb * MIB, progress=context.beat,
        )
        return path, progress.updates


def is_requested(context: WorkerContext[LearnerRecord]) -> bool:
    """Whether a checkpoint was requested that has not been written or refused."""
    return context.desired.checkpoint > context.world.learner.checkpoints.served


def report_failure(context: WorkerContext[LearnerRecord], asked: int, reason: str) -> None:
    """Report that no checkpoint is written, and mark the request `asked` as answered."""
    context.record.checkpoint_failures += 1
    context.record.writing = 0
    context.event("checkpoint_failed", reason=reason, request=asked)
    context.world.learner.checkpoints.served = asked


def score(metrics: ProcessMetrics) -> checkpoints.Score | None:
    """The mean return of the last evaluation, or else of the last `LIVE_EPISODES` live episodes.

    None while there have been too few episodes.
    """
    evaluation = metrics.evaluation
    if evaluation.evaluations:
        episodes = evaluation.episodes // evaluation.evaluations
        return checkpoints.Score(evaluation.mean_return, episodes, "evaluation")
    returns = metrics.environment.episodes.newest(LIVE_EPISODES)["return"]
    if len(returns) < LIVE_EPISODES or not np.isfinite(returns).all():
        return None
    return checkpoints.Score(float(returns.mean()), len(returns), "live")
