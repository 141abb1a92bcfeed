"""The learner's actor without its update, for `cluster_throughput`; this module imports Ray."""

from __future__ import annotations

from benchmarks.cluster.plain_actors import without_update
from rtagent.cluster.ray_learner import LearnerActor
from rtagent.cluster.trainer import Trainer


class IdleLearner(LearnerActor):
    """The learner's actor, whose update takes no time."""

    def __init__(self, folder: str | None) -> None:
        Trainer.learn = without_update  # type: ignore[method-assign]
        super().__init__(folder)
