"""The experiment with pending actions: what it compares, and what it draws."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib import pyplot

from benchmarks.experiments import pending_actions
from benchmarks.experiments.pending_actions import EXAMPLES, EXPERIMENT, draw, settings
from benchmarks.results import Results
from rtagent.config_sources import load_config


@pytest.mark.parametrize("trial", EXPERIMENT.trials(False))
def test_the_contenders_differ_in_one_setting(trial: dict[str, str]) -> None:
    file = EXAMPLES / "cartpole.toml" if trial["world"] == "cartpole" else None
    told, deaf = (
        load_config(file, settings(trial["world"], count, 3), {}).model_dump() for count in (8, 0)
    )
    assert told["env"].pop("pending_actions") == 8
    assert deaf["env"].pop("pending_actions") == 0
    assert told == deaf
    assert told["run"]["seed"] == 3


def test_a_trial_says_what_the_difference_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def in_turn(calls, at_once):  # type: ignore[no-untyped-def]
        yield from (call() for call in calls.values())

    def play(world: str, time: str, minutes: float, contender: str, seed: int) -> dict[str, float]:
        return {f"return_{contender}": 12.0 if contender == "with" else 2.5}

    monkeypatch.setattr(pending_actions, "side_by_side", in_turn)
    monkeypatch.setattr(pending_actions, "play", play)
    assert pending_actions.run("cartpole", "virtual", 1.0, 0)["difference"] == 9.5


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    curve = [[float(second), float(second % 7)] for second in range(60)]
    figures = {
        "difference": 9.5, "return_with": 12.0, "return_without": 2.5, "curve_with": curve,
        "curve_without": curve,
    }
    trials = [
        {"params": params, "seed": seed, "figures": figures}
        for params in EXPERIMENT.trials(True) for seed in (0, 1)
    ]
    failed = {"params": EXPERIMENT.trials(True)[0], "seed": 2, "failed": "no luck"}
    figure = pyplot.figure()
    draw(Results([*trials, failed]), figure)
    assert "difference 9.5" in figure.axes[0].get_title()
    pyplot.close(figure)
