"""When a run of the reference benchmark counts as solved."""

from __future__ import annotations

import pytest

from benchmarks.learning.reference import OVER_EPISODES, outcome
from rtagent.errors import UserError


@pytest.mark.parametrize(
    ("returns", "solved_at"),
    [
        ([5.0] * 3, None),
        ([5.0] * OVER_EPISODES, 3 * OVER_EPISODES),
        ([0.0, *[5.0] * OVER_EPISODES], 3 * (OVER_EPISODES + 1)),
        ([0.0] * 30, None),
    ],
)
def test_solved_is_a_mean_over_enough_episodes(
    returns: list[float], solved_at: int | None
) -> None:
    found = outcome(returns, [3] * len(returns), 1.0, 5.0)
    assert found.solved_at == solved_at
    assert found.final == sum(returns[-OVER_EPISODES:]) / len(returns[-OVER_EPISODES:])


def test_a_run_without_an_episode_is_refused() -> None:
    with pytest.raises(UserError, match="no episode ended: play for longer"):
        outcome([], [], 1.0, 5.0)
