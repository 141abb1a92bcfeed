"""What is said of the final returns of both sides: the arithmetic."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from benchmarks.learning import dqn_curves
from benchmarks.learning.dqn_curves import Curves, Game, compared, interval, learn, permutation_p
from rtagent.errors import UserError


def curves(naive: Sequence[float], ours: Sequence[float]) -> Curves:
    """Runs of a single episode each, by its return."""
    found = Curves()
    found.returns = {"naive": [[each] for each in naive], "ours": [[each] for each in ours]}
    return found


def test_the_interval_of_few_seeds_is_as_wide_as_the_table_of_students_t_says() -> None:
    finals = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    half = 2.776 * np.sqrt(2.5 / 5)
    assert interval(finals) == pytest.approx((3.0 - half, 3.0 + half), abs=1e-3)
    assert interval(finals[:1]) is None


@pytest.mark.parametrize(
    ("naive", "ours", "alike"),
    [
        ((1, 2, 3, 4, 5), (2, 3, 4, 5, 6), True), ((1, 2, 3, 4, 5), (51, 52, 53, 54, 55), False),
        # The chance of the most extreme split of so few is above the level of the test.
        ((1, 2, 3), (51, 52, 53), None), ((1,), (51,), None),
    ],
)
def test_few_seeds_say_nothing(
    naive: Sequence[float], ours: Sequence[float], alike: bool | None
) -> None:
    assert compared(curves(naive, ours))["alike"] is alike


def test_no_episode_is_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Means of nothing were further apart than all splits: DIFFERENT, with p = 0.00."""

    class Endless:
        def __init__(self, *_: object, **__: object) -> None:
            self.returns = self.lengths = list[float]()

        def run(self, *_: object) -> None:
            pass

    monkeypatch.setattr(dqn_curves, "Offline", Endless)
    with pytest.raises(UserError, match="no episode ended within 4 ticks: play for longer"):
        learn(Game([], 10, 0, 0.5), 5, 4)


def test_many_seeds_are_compared_by_some_of_their_splits(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    one, other = rng.normal(0.0, 1.0, 8), rng.normal(0.8, 1.0, 8)
    exact = permutation_p(one, other)
    monkeypatch.setattr(dqn_curves, "MOST_SPLITS", 10_000)
    assert permutation_p(one, other) == pytest.approx(exact, abs=0.02)
    # The true split counts, so no p is 0.
    assert permutation_p(one, one + 50.0) == pytest.approx(1 / 6435, abs=0.0005)
    assert permutation_p(one, one + 50.0) > 0.0
    monkeypatch.undo()
    everything = np.arange(30.0)
    assert 0.9 < permutation_p(everything[::2], everything[::2] + 0.1) <= 1.0
