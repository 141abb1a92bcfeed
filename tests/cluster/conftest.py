"""What the tests of the cluster share."""

import pytest
from torch import Tensor

from rtagent.learning.algorithms.value_learning import ValueLearning
from rtagent.learning.replay.batch import Batch


@pytest.fixture
def no_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    """An update has no gradient, which would take half of a test's time; all else is as always.

    For tests of sessions, shares and figures; their errors are the rewards.
    """

    def compute(
        learning: ValueLearning, batch: Batch, *, acting: bool = True
    ) -> tuple[Tensor, Tensor]:
        return batch.rewards.mean(), batch.rewards.abs()

    monkeypatch.setattr(ValueLearning, "compute_gradient", compute)
