"""Every staggering algorithm by name."""

from __future__ import annotations

from collections.abc import Mapping

from rtagent.staggering.adaptive import adaptive
from rtagent.staggering.baselines import (
    sequential,
    sequential_infer_learn,
    sequential_learn_infer,
    unstaggered,
)
from rtagent.staggering.instructions import Factory
from rtagent.staggering.published import published_expected_time, published_maximum_time
from rtagent.staggering.slots import expected_time, maximum_time

LIVE = ("adaptive", "maximum-time", "expected-time")
"""The algorithms for use; the first is the default. All others are for comparison."""

PROMISING = frozenset({"adaptive"})
"""The algorithms that promise an action for a tick; all others register it for the next tick."""

ALGORITHMS: Mapping[str, Factory] = {
    "adaptive": adaptive,
    "maximum-time": maximum_time,
    "expected-time": expected_time,
    "published-maximum-time": published_maximum_time,
    "published-expected-time": published_expected_time,
    "unstaggered": unstaggered,
    "sequential": sequential,
    "sequential-infer-learn": sequential_infer_learn,
    "sequential-learn-infer": sequential_learn_infer,
}
