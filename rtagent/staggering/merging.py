"""Merges the actions that several inferences promise for one tick: pure functions of the deposits.

Each inference process keeps its newest promise for a tick, so there are at most as many deposits as
processes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from rtagent.config import Merging
from rtagent.staggering.arbiter import Deposited, newest

Merge: TypeAlias = Callable[[Sequence[Deposited]], Deposited]
"""Makes of one or more deposits for a tick the one that is executed."""

WEIGHT_DECAY = 0.01
"""The m of the ensemble's weights."""


def ensemble(deposits: Sequence[Deposited]) -> Deposited:
    """The newest deposit, with the weighted mean of all its continuous actions.

    Zhao, Kumar, Levine, Finn, Learning Fine-Grained Bimanual Manipulation with Low-Cost Hardware
    (arXiv:2304.13705), Algorithm 2: the weight of the i-th oldest action, i from 0, is exp(-m i).
    """
    latest = newest(deposits)
    if len(deposits) == 1:
        return latest
    by_age = sorted(deposits, key=lambda each: (each.frame, each.registered_at))
    weights = np.exp(-WEIGHT_DECAY * np.arange(len(by_age)))
    actions = np.stack([np.asarray(each.action, np.float64) for each in by_age])
    mean = np.average(actions, axis=0, weights=weights)
    return replace(latest, action=mean.astype(np.asarray(latest.action).dtype))


MERGES: Mapping[Merging, Merge] = {"newest": newest, "ensemble": ensemble, "prefix": newest}
"""The merges by `policy.chunk`. `prefix` differs from `newest` in what the policy is given."""
