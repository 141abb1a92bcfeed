"""Learning curves in real time: Starfall, CartPole at 200 Hz and Pendulum, by default settings.

Whole daemons on the wall clock. Starfall is the default configuration; the others are
`examples/cartpole.toml` and `examples/pendulum.toml`, where an action is executed one or two ticks
after the frame that it was computed from. Random play and doing nothing play the same game,
offline. Exploration is included. A run of each seed is expected to reach `target`.
"""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np

from benchmarks.experiment import Experiment
from benchmarks.learning_runs import EXAMPLES, LAST_EPISODES, OFFLINE, learn, play_offline
from benchmarks.results import Results
from rtagent.config_sources import load_config
from rtagent.telemetry.learning_curve import moving_mean

WORLDS = {
    "starfall": (None, 15.0, 0.0),
    "cartpole": (EXAMPLES / "cartpole.toml", 2.5, 150.0),
    "pendulum": (EXAMPLES / "pendulum.toml", 2.5, -400.0),
}
"""File, minutes and target; at random a pole stands 22 ticks and a pendulum costs 1200."""


def trials(quick: bool) -> list[dict[str, Any]]:
    """Each world, learned; Starfall offline, too."""
    learned = [
        {"time": "wall clock", "world": world, "who": "rtagent", "target": target,
         "minutes": 0.5 if quick else minutes}
        for world, (_, minutes, target) in WORLDS.items()
    ]
    offline = [{"time": "none", "world": "starfall", "who": name} for name in OFFLINE]
    return learned + offline


def run(world: str, who: str, seed: int, minutes: float = 0.0, **named: Any) -> dict[str, Any]:
    """A daemon that learns, or a policy that does not."""
    if who in OFFLINE:
        return {"last": play_offline(who, seed)}
    with tempfile.TemporaryDirectory() as folder:
        settings = [f"run.state_dir={folder}", f"run.seed={seed}", "run.tensorboard=false"]
        config = load_config(WORLDS[world][0], settings, {})
        found = learn(config, minutes, f"{world}, seed {seed}: ")
    return {
        "last": found["mean_return_last_20"], "updates": found["updates"],
        "inaction_percent": 100.0 * found["inaction_fraction"],
        "reached": int(found["mean_return_last_20"] >= named["target"]),
        "episodes": found["episodes"],
    }


def draw(results: Results, figure: Any) -> None:
    """A curve for each seed, beside the policies that do not learn."""
    worlds = results.values("world")
    for axes, world in zip(np.atleast_1d(figure.subplots(1, len(worlds))), worlds, strict=True):
        here = results.where(world=world)
        for trial in here.where(who="rtagent").trials:
            episodes = np.array(trial.get("figures", {}).get("episodes", [])).reshape(-1, 2)
            smooth = moving_mean(episodes[:, 1], LAST_EPISODES)
            axes.plot(episodes[:, 0] / 60.0, smooth, label=f"seed {trial['seed']}")
        for who, style in zip(OFFLINE, (":", "--"), strict=True):
            point = here.where(who=who).point("last")
            if point:
                axes.axhline(point.mean, color="grey", linestyle=style, label=who)
        axes.set(title=world, xlabel="minutes", ylabel=f"mean return of {LAST_EPISODES} episodes")
        axes.legend(fontsize=8)
        axes.grid(alpha=0.3)


EXPERIMENT = Experiment(trials, run, draw, size=(14, 4.5))
