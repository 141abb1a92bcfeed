"""Questions that wait for a policy, and what becomes of them."""

from __future__ import annotations

import sys
import threading
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from rtagent.clock import VirtualClock
from rtagent.remote.batching import Batcher

PATIENCE_S = 30.0


def test_a_policy_that_exits_fails_its_batch_and_answers_the_next() -> None:
    """It ended the thread, and no question was answered any more."""

    def policy(questions: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any]]:
        if questions.sum() == 0:
            sys.exit("no more")
        return (questions + 1,)

    with closing(Batcher(policy, VirtualClock())) as batcher:
        with pytest.raises(RuntimeError, match=r"SystemExit.*no more"):
            batcher.submit(np.zeros(2)).result(PATIENCE_S)
        answered = batcher.submit(np.ones(2)).result(PATIENCE_S)
        assert answered.arrays[0].tolist() == [2.0, 2.0]


def test_a_question_that_the_policy_fails_at_fails_alone() -> None:
    """All clients whose questions were in its batch lost their connections."""
    began, go, sizes = threading.Event(), threading.Event(), list[int]()

    def policy(questions: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any]]:
        sizes.append(len(questions))
        began.set()
        assert go.wait(PATIENCE_S)
        if np.isnan(questions).any():
            raise ValueError("no number")
        return (questions + 1,)

    with closing(Batcher(policy, VirtualClock())) as batcher:
        batcher.submit(np.zeros(2))
        assert began.wait(PATIENCE_S)
        good, bad, other = (batcher.submit(np.full(2, value)) for value in (1.0, np.nan, 2.0))
        go.set()
        assert good.result(PATIENCE_S).arrays[0].tolist() == [2.0, 2.0]
        assert other.result(PATIENCE_S).arrays[0].tolist() == [3.0, 3.0]
        with pytest.raises(ValueError, match="no number"):
            bad.result(PATIENCE_S)
        assert sizes == [1, 3, 1, 1, 1]
