"""The experiment with recurrent policies: its world, and what it says."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

import benchmarks.worlds.hidden_velocity  # noqa: F401
from benchmarks.experiments import recurrent


def test_velocities_are_hidden() -> None:
    shown, whole = gymnasium.make("HiddenVelocity-v0"), gymnasium.make("CartPole-v1")
    for env in (shown, whole):
        env.reset(seed=4)
    for action in (0, 1, 1, 0):
        seen, known = shown.step(action)[0], whole.step(action)[0]
        assert shown.observation_space.contains(seen)
        np.testing.assert_array_equal(seen, known[[0, 2]])


def test_a_trial_plays_both_and_says_what_the_difference_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recurrent, "SETTINGS", (*recurrent.SETTINGS, "learning.processes=0"))
    found = recurrent.run("virtual", 2, 0.1, 0)
    assert found["difference"] == found["return_lstm"] - found["return_mlp"]
    assert 1.0 <= found["lag_lstm"] <= 2.0
    assert found["inaction_lstm"] < 0.1
