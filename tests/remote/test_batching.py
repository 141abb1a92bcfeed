"""Questions that wait for a policy, and what becomes of them."""

from __future__ import annotations

import sys
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

    batcher = Batcher(policy, VirtualClock())
    try:
        with pytest.raises(RuntimeError, match=r"SystemExit.*no more"):
            batcher.submit(np.zeros(2)).result(PATIENCE_S)
        answered = batcher.submit(np.ones(2)).result(PATIENCE_S)
        assert answered.arrays[0].tolist() == [2.0, 2.0]
    finally:
        batcher.close()
