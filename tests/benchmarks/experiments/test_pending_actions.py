"""The experiment with pending actions: what it compares."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import benchmarks.worlds.starfall_positions  # noqa: F401
from benchmarks.experiments import pending_actions
from benchmarks.experiments.pending_actions import EXPERIMENT, WORLDS, settings
from benchmarks.results import Results
from rtagent.config_sources import load_config


@pytest.mark.parametrize("name", WORLDS)
def test_the_contenders_differ_in_one_setting(name: str) -> None:
    world = WORLDS[name]
    told, deaf = (
        load_config(world.file, settings(world, count, 3), {}).model_dump() for count in (8, 0)
    )
    assert told["env"].pop("pending_actions") == 8
    assert deaf["env"].pop("pending_actions") == 0
    assert told == deaf
    assert told["run"]["seed"] == 3


def test_positions_move_as_the_rules_say() -> None:
    env = gymnasium.make("StarfallPositions-v0")
    try:
        seen, _ = env.reset(seed=4)
        assert env.observation_space.contains(seen)
        heights = []
        for action in [2] * 10 + [1] * 40:
            before, (seen, *_) = seen, env.step(action)
            assert env.observation_space.contains(seen)
            # Four pixels a tick, as far as there is water.
            moved = 4 / 128 * (action == 2) - 4 / 128 * (action == 1 and before[0] > 0.0)
            assert seen[0] - before[0] == pytest.approx(moved, abs=1e-6)
            heights.append(seen[2])
        flying = [each for each in heights if each]
        # Two pixels a tick.
        np.testing.assert_allclose(np.diff(flying), 2 / 128, atol=1e-6)
        assert len(flying) > 30
        assert seen[-1] == pytest.approx(1 / 11)
    finally:
        env.close()


def test_a_trial_says_what_the_difference_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def in_turn(calls, at_once):  # type: ignore[no-untyped-def]
        return {name: value for call in calls.values() for name, value in call().items()}

    def play(world: str, time: str, minutes: float, contender: str, seed: int) -> dict[str, float]:
        return {f"return_{contender}": 12.0 if contender == "with" else 2.5}

    monkeypatch.setattr(pending_actions, "figures_of_all", in_turn)
    monkeypatch.setattr(pending_actions, "play", play)
    assert pending_actions.run("cartpole", "virtual", 1.0, 0)["difference"] == 9.5


def test_the_title_of_each_panel_can_be_read() -> None:
    """With a row of eight panels they lay one upon the other."""
    figures = {"difference": -123.4, "return_with": 100.0, "return_without": 223.4}
    done = [
        {"params": params, "seed": seed, "figures": figures}
        for params in EXPERIMENT.trials(False)[1:] for seed in range(2)
    ]
    figure = Figure(figsize=EXPERIMENT.size, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    EXPERIMENT.draw(Results(done), figure)
    canvas.draw()
    titles = [axes.title.get_window_extent() for axes in figure.axes]
    assert len(titles) == 2 * len(WORLDS) - 1, "and no panel is empty"
    for number, title in enumerate(titles):
        assert 0.0 <= title.x0 < title.x1 <= figure.bbox.width
        assert not any(title.overlaps(other) for other in titles[:number])
    legend = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert legend == ["with: 100.0 in the last third", "without: 223.4 in the last third"]
