"""Everything that `GET /v1/stats` answers, in its order."""

from __future__ import annotations

from dataclasses import dataclass

from rtagent.telemetry.figures.acting import Actions, Clock, Inference, Regrets
from rtagent.telemetry.figures.learning import R3, Episodes, Learning, Replay


@dataclass(frozen=True)
class Stats:
    """Every figure. One that is not known is null, never 0."""

    clock: Clock
    actions: Actions
    inference: Inference
    learning: Learning
    replay: Replay
    r3: R3
    regret: Regrets
    episodes: Episodes
