"""How far rewards of a lower precision are off: the arithmetic, and a short trial."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure

from benchmarks.experiments import convergence
from benchmarks.experiments.convergence import reward_error
from benchmarks.learning_runs import EXAMPLES
from benchmarks.results import Results
from rtagent.config import LEARNING_PRECISIONS
from rtagent.config_sources import load_config


def test_the_reward_error_is_in_percent_and_chance_takes_equal_runs_as_far() -> None:
    full = np.array([100.0, 120.0, 80.0])
    error, chance = reward_error(full, full * 0.9)
    assert error == pytest.approx(10.0)
    assert chance > error
    assert reward_error(full, full)[0] == 0.0
    assert reward_error(-full, -full * 1.02)[0] == pytest.approx(2.0)
    far, small = reward_error(np.full(5, 100.0), np.full(5, 50.0))
    assert (far, small <= far) == (50.0, True)


@pytest.mark.parametrize("game", convergence.GAMES)
def test_every_game_is_played_and_learned_by_the_algorithm_that_its_name_says(game: str) -> None:
    about = convergence.GAMES[game]
    config = load_config(EXAMPLES / about.example, list(about.settings))
    assert game.endswith(config.learning.algorithm.upper())


def test_a_trial_compares_all_precisions_and_differs_in_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow = convergence.Game("cartpole.toml", 0.1, ("learning.processes=0",))
    monkeypatch.setattr(convergence, "GAMES", {"CartPole, none": slow})
    found = convergence.run("CartPole, none", 0.1, 0)
    rewards = [found[f"reward_{each}"] for each in LEARNING_PRECISIONS]
    assert rewards == rewards[:1] * 3
    assert found["difference_bfloat16"] == found["difference_float16"] == 0.0


@pytest.mark.parametrize(("reward", "said"), [(100.0, ("0.0 %", "2.0 %")), (0.0, ("unknown",) * 2)])
def test_the_picture_says_the_reward_errors(reward: float, said: tuple[str, str]) -> None:
    trials = [
        {"params": {"game": "CartPole, DQN"}, "seed": seed, "figures": {
            f"{name}_{each}": value for each in LEARNING_PRECISIONS for name, value in {
                "reward": reward + 2.0 * (each == "float16"),
                "curve": [(60.0, 1.0), (120.0, 2.0)],
            }.items()
        }}
        for seed in (0, 1)
    ]
    figure = Figure()
    convergence.draw(Results(trials), figure)
    (axes,) = figure.axes
    title = axes.get_title()
    for precision, error in zip(LEARNING_PRECISIONS[1:], said, strict=True):
        assert f"{precision}: reward error {error} (" in title
    assert len(axes.lines) == len(LEARNING_PRECISIONS)
    assert figure.get_suptitle() == "mean and standard deviation over the seeds"
