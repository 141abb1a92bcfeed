"""Where a lower precision begins to pay, and how far its rewards are off: the arithmetic."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.convergence import moving_mean, reward_error
from benchmarks.precision import NETWORKS, Row, break_even, build, random_batch
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
    assert update.step(random_batch(name, 2)).finite


def test_the_reward_error_is_in_percent_and_chance_takes_equal_runs_as_far() -> None:
    full = np.array([100.0, 120.0, 80.0])
    error, chance = reward_error(full, full * 0.9)
    assert error == pytest.approx(10.0)
    assert chance > error
    assert reward_error(full, full)[0] == 0.0
    assert reward_error(-full, -full * 1.02)[0] == pytest.approx(2.0)
    far, small = reward_error(np.full(5, 100.0), np.full(5, 50.0))
    assert (far, small <= far) == (50.0, True)


def test_curves_are_means_of_the_last_hundred_episodes() -> None:
    found = moving_mean([float(each) for each in range(250)])
    assert found[0] == 0.0
    assert found[9] == pytest.approx(4.5)
    assert found[249] == pytest.approx(np.mean(np.arange(150, 250)))
