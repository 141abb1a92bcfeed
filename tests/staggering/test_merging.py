"""Several actions for one tick, merged as by a slow transcription of the algorithm."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtagent.staggering.arbiter import Arbiter, Deposited, Source
from rtagent.staggering.merging import MERGES, WEIGHT_DECAY, ensemble
from tests.staggering.test_arbiter import ActionStore


def promised(frame: int, action: Any, worker: int = 0) -> Deposited:
    return Deposited(worker, frame, 10, action, 7, frame + 0.5, position=10 - frame)


def as_printed(actions: list[list[float]]) -> list[float]:
    """Algorithm 2, from the oldest to the newest."""
    weights = [math.exp(-WEIGHT_DECAY * i) for i in range(len(actions))]
    return [
        sum(weight * action[n] for weight, action in zip(weights, actions, strict=True))
        / sum(weights)
        for n in range(len(actions[0]))
    ]


@given(st.lists(st.tuples(st.floats(-1, 1), st.floats(-1, 1)), min_size=1, max_size=9), st.data())
def test_the_ensemble_is_the_weighted_mean(actions: list[tuple[float, float]], data: Any) -> None:
    deposits = [
        promised(frame, np.float32(action), frame) for frame, action in enumerate(actions)
    ]
    merged = ensemble(data.draw(st.permutations(deposits)))
    wanted = as_printed([list(map(float, np.float32(each))) for each in actions])
    np.testing.assert_allclose(merged.action, wanted, atol=1e-6)
    assert merged.action.dtype == np.float32
    last = len(actions) - 1
    assert (merged.frame, merged.worker, merged.position) == (last, last, 10 - last)


@pytest.mark.parametrize(("chunk", "action"), [("newest", 3.0), ("prefix", 3.0), ("ensemble", 2.0)])
def test_the_arbiter_executes_what_they_come_to(chunk: Any, action: float) -> None:
    store = ActionStore()
    store.deposits = [promised(5, np.float32([1.0])), promised(7, np.float32([3.0]), 1)]
    choice = Arbiter(merge=MERGES[chunk]).choose(10, store)
    assert (choice.source, choice.deposit.frame, choice.deposit.worker) == (Source.AGENT, 7, 1)
    assert choice.deposit.action[0] == pytest.approx(action, abs=0.01)
