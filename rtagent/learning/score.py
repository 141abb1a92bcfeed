"""How well the agent plays, as the figures of the run have it when a checkpoint is written."""

from __future__ import annotations

import numpy as np

from rtagent.memory.process_metrics import ProcessMetrics
from rtagent.storage.checkpoint import Score

LIVE_EPISODES = 20
"""The newest ones, whose mean counts where nothing is evaluated."""


def score(metrics: ProcessMetrics) -> Score | None:
    """The mean return of the last evaluation, else of the last `LIVE_EPISODES` on the wall clock.

    None while there have been too few episodes.
    """
    evaluation = metrics.evaluation
    if evaluation.evaluations:
        each = evaluation.episodes // evaluation.evaluations
        return Score(evaluation.mean_return, each, "evaluation")
    returns = metrics.environment.episodes.newest(LIVE_EPISODES)["return"]
    if len(returns) < LIVE_EPISODES or not np.isfinite(returns).all():
        return None
    return Score(float(returns.mean()), len(returns), "live")
