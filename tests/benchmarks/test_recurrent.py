"""The experiment with recurrent policies: its world, and what it says and draws."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from matplotlib import pyplot

import benchmarks.hidden_velocity  # noqa: F401
from benchmarks.experiments import recurrent
from benchmarks.experiments.recurrent import EXPERIMENT, draw
from benchmarks.results import Results


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
    found = recurrent.run(2, 0.1, 0)
    assert found["difference"] == found["return_lstm"] - found["return_mlp"]
    assert 1.0 <= found["lag_lstm"] <= 2.0
    assert found["inaction_lstm"] < 0.1


def test_the_picture_is_drawn() -> None:
    curve = [[float(second), float(second % 7)] for second in range(60)]
    figures = {
        "difference": 9.5, "return_lstm": 12.0, "return_mlp": 2.5, "curve_lstm": curve,
        "curve_mlp": curve,
    }
    trials = [
        {"params": params, "seed": seed, "figures": figures}
        for params in EXPERIMENT.trials(True) for seed in (0, 1)
    ]
    figure = pyplot.figure()
    draw(Results(trials), figure)
    assert "difference 9.5" in figure.axes[0].get_title()
    pyplot.close(figure)
