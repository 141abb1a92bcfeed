"""The result of a run in virtual time: its ledger, and figures counted from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rtagent.clock import NANO
from rtagent.memory.array_buffer import Floats
from rtagent.memory.ledger import Rows
from rtagent.staggering.arbiter import Source
from rtagent.staggering.figures import interaction

Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class VirtualRun:
    """A finished run.

    Attributes:
        rows: (ticks,) the tick ledger, see `memory.ledger.row_dtype`; times begin with 0.
        rate_hz: ticks per second.
        updates: number of updates applied over the run.
        skipped: number of updates left out because loss or gradient was not finite.
        inference_s: seconds of an inference without injected latency.
        update_s: seconds of an update. If None, there is no learner.
        weights: (parameters,) the weights that act at the end.
    """

    rows: Rows
    rate_hz: float
    updates: int
    skipped: int
    inference_s: float
    update_s: float | None
    weights: Floats

    def figures(self, since_s: float = 0.0) -> dict[str, Any]:
        """As `figures_since`, and `updates` and `skipped` of the whole run."""
        whole = {"updates": self.updates, "skipped": self.skipped}
        return {**figures_since(self.rows, since_s), **whole}

    @property
    def ends_s(self) -> Doubles:
        """(episodes,) seconds at which the finished episodes ended."""
        return finished_episodes(self.rows)[0]

    @property
    def returns(self) -> Doubles:
        """(episodes,) sums of their rewards."""
        return finished_episodes(self.rows)[1]


def figures_since(rows: Rows, since_s: float) -> dict[str, Any]:
    """Figures of the rows of a live or a virtual run, from a second on.

    Args:
        rows: of the ledger, from the first one on, whose time is 0.
        since_s: rows before this second are left out.

    Returns:
        `ticks`, `inaction_fraction` (default behaviour), `strict_inaction_fraction` (re-used
        actions, too), `delay_ticks` (how often each delay was executed), `delay_mean` (ticks),
        `interaction_ms`, `interaction_cv`, `episodes` that ended, `mean_return`; None where there
        is nothing to count.
    """
    ends_s, returns = finished_episodes(rows)
    returns = returns[ends_s >= since_s]
    return {
        **_ticks(rows[rows["time_ns"] >= since_s * NANO]), "episodes": len(returns),
        "mean_return": float(returns.mean()) if len(returns) else None,
    }


def finished_episodes(rows: Rows) -> tuple[Doubles, Doubles]:
    """Seconds at which episodes ended, and sums of their rewards, each (episodes,)."""
    ends = rows["flags"] != 0
    sums = np.cumsum(rows["reward"], dtype=np.float64)[ends]
    return rows["time_ns"][ends] / NANO, np.diff(sums, prepend=0.0)


def _ticks(rows: Rows) -> dict[str, Any]:
    default, reused, new = (rows["source"] == each for each in (
        Source.DEFAULT, Source.REUSED, Source.AGENT
    ))
    delays = (rows["tick"] - rows["observed"])[~default]
    between = interaction(rows["time_ns"][new] / 1e6)
    counted = zip(*np.unique(delays, return_counts=True), strict=True)
    return {
        "ticks": len(rows),
        "inaction_fraction": float(default.mean()) if len(rows) else None,
        "strict_inaction_fraction": float((default | reused).mean()) if len(rows) else None,
        "delay_ticks": {int(delay): int(count) for delay, count in counted},
        "delay_mean": float(delays.mean()) if len(delays) else None,
        "interaction_ms": between.mean, "interaction_cv": between.cv,
    }
