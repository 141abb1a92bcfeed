"""Where a lower precision begins to pay: the arithmetic."""

from __future__ import annotations

import pytest

from benchmarks.learning.dqn_sides import random_batch
from benchmarks.learning.precision import FEATURES, HIDDEN, NETWORKS, Row, break_even, build
from rtagent.config import LearningConfig
from rtagent.learning.shared_update import SharedUpdate


def rows(*speedups: float | None) -> list[Row]:
    """One for each batch of 16, 64, ...; None if bfloat16 was left out."""
    found = []
    for place, speedup in enumerate(speedups):
        low = {} if speedup is None else {"bfloat16": 1.0 / speedup}
        found.append(Row("mlp", 4 ** (place + 2), {"float32": 1.0, **low}))  # type: ignore[dict-item]
    return found


@pytest.mark.parametrize(
    ("speedups", "wanted"),
    [((0.5, 0.9, 1.2, 2.0), 256), ((1.1, 1.2), 16), ((0.5, 1.2, 0.9), None), ((None, None), None),
     ((1.3, 0.9, 1.2), 256)],
)
def test_a_precision_pays_from_where_on_it_is_faster(
    speedups: tuple[float | None, ...], wanted: int | None
) -> None:
    assert break_even(rows(*speedups), "bfloat16") == wanted


@pytest.mark.parametrize("name", [name for name in NETWORKS if "4096" not in name])
def test_every_network_learns_from_its_batch(name: str) -> None:
    update = SharedUpdate.private(build(name), LearningConfig(precision="bfloat16"))
    batch = random_batch(2, FEATURES if name in HIDDEN else None)
    assert update.step(batch).finite
