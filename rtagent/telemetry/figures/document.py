"""Everything that `GET /v1/stats` answers, in its order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from rtagent.telemetry.figures.acting import Actions, Clock, Inference, Regrets
from rtagent.telemetry.figures.cluster import Cluster
from rtagent.telemetry.figures.declaration import Figure
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
    cluster: Cluster | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class Verdict:
    """An answer in words."""

    level: Annotated[str, Figure("One of good, watch, bad and none (not known).", "good")]
    headline: Annotated[str, Figure("The answer, in a few words.", "Nothing is broken")]
    detail: Annotated[str, Figure(
        "What it is based on.", "5 processes run; no restarts of present processes")]


@dataclass(frozen=True)
class Verdicts:
    """Is it acting in time, at what cost, is it learning, is anything broken? Do actions come
    evenly, is the data of a horizon used as fast as its time, and, with a cluster, how is the link?
    """

    acting: Verdict
    lateness: Verdict
    learning: Verdict
    health: Verdict
    evenness: Verdict
    schedule: Verdict
    cluster: Verdict | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class Answer(Stats):
    """Every figure, and what they mean. A figure that is not known is null, never 0."""

    verdicts: Verdicts
