"""The figures of a ledger's rows."""

from __future__ import annotations

import numpy as np
import pytest

from rtagent.staggering.arbiter import Source
from rtagent.virtual.result import figures_since


def test_figures_are_of_the_rows_and_episode_ends_since_a_second() -> None:
    rows = np.array(
        [
            (0, -1, 0, 1.0, 0, Source.DEFAULT), (1, 0, 100_000_000, 2.0, 1, Source.AGENT),
            (2, 0, 200_000_000, 4.0, 0, Source.REUSED), (3, 2, 300_000_000, 8.0, 1, Source.AGENT),
            (4, 3, 400_000_000, 16.0, 0, Source.AGENT),
        ],
        [("tick", int), ("observed", int), ("time_ns", int), ("reward", float), ("flags", int),
         ("source", int)],
    )
    found = figures_since(rows, 0.0)
    assert (found["inaction_fraction"], found["strict_inaction_fraction"]) == (0.2, 0.4)
    assert (found["episodes"], found["mean_return"], found["delay_ticks"]) == (2, 7.5, {1: 3, 2: 1})
    assert figures_since(rows, 0.2) == {
        "ticks": 3, "inaction_fraction": 0.0, "strict_inaction_fraction": 1 / 3,
        "delay_ticks": {1: 2, 2: 1}, "delay_mean": pytest.approx(4 / 3),
        "interaction_ms": 100.0, "interaction_cv": None, "episodes": 1, "mean_return": 12.0,
    }
