"""The Realtime RL paper's games, where you have imported them: by model size, as in its figures.

Figs. 3, 4, 8 and 9 of Riemer et al., Realtime Reinforcement Learning. `rtagent rom import` brings
the cartridges; the rest lies in the state directory:

    starts/battles, starts/catches   a saved state for each encounter of Pokemon Blue, in the order
                                     of their names (the paper has 295 and 93)
    starts/tetris                    states of a running game of Tetris, or a script that begins one
    demonstrations/tetris            recorded play of Tetris (the paper: 16,000 steps)

Battles and catches are played on the wall clock, one after the other, each until it is won or
caught; what counts is how many are completed. A ResNet of width k is really computed; k = 98, whose
latency is injected and named so, is played in virtual time (see `model-size`). Tetris is played in
virtual time with the latencies of such networks: 16,000 updates on the demonstration before the
first action, delayed as the policy will be, then play while learning; what counts is the mean
return of all episodes. Sequential is one process that infers, then waits for an update.
"""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import rtagent
import rtagent.virtual
from benchmarks.comparison import COLOURS, TICK_S, draw_scores
from benchmarks.experiment import VIRTUAL, Experiment
from benchmarks.experiments.model_size import LARGEST_TICKS, UPDATE_S, WIDTHS, settings
from benchmarks.learning_runs import learn, learn_virtually
from benchmarks.results import Results
from benchmarks.worlds.encounters import completed
from rtagent.config_sources import load_config
from rtagent.errors import UserError
from rtagent.storage.checkpoint import newest

ENCOUNTERS = {
    "battles": "rtagent/PokemonBlueBattle-v0", "catches": "rtagent/PokemonBlueCatch-v0",
}
TETRIS = "tetris"
LATENCY_TICKS = {1: 0.1, 7: 2.0, 29: 27.0, 98: float(LARGEST_TICKS)}
"""Ticks of an inference by width: 1.4, 33 and 453 ms in bfloat16 on one core, and see
`LARGEST_TICKS`."""
DEMONSTRATED_UPDATES = 16_000
UPDATES_OF_A_TICK = 1600
"""Updates on the demonstration in a tick of virtual time, which accepts no shorter ones."""
PLAYED_MINUTES = {"battles": 30.0, "catches": 30.0, TETRIS: 120.0}
QUICK_MINUTES = 0.5
MEASURES = {
    "battles": "battles won", "catches": "Pokemon caught", TETRIS: "mean return of all episodes",
}


def trials(quick: bool) -> list[dict[str, Any]]:
    """Both contenders of a policy are neighbours: they make a wave."""
    widths = WIDTHS[:1] if quick else tuple(LATENCY_TICKS)
    played = []
    for game in MEASURES:
        minutes = QUICK_MINUTES if quick else PLAYED_MINUTES[game]
        for width in widths:
            computed = game != TETRIS and width in WIDTHS
            size = {"width": width} if computed else {
                "width": width, "injected_ticks": LATENCY_TICKS[width]
            }
            played += [
                {"time": "wall clock" if computed else VIRTUAL, "game": game,
                 "contender": contender, "minutes": minutes, **size}
                for contender in COLOURS
            ]
    return played


def run(
    game: str, contender: str, minutes: float, width: int, seed: int,
    injected_ticks: float | None = None, updates: int = DEMONSTRATED_UPDATES, **_: Any,
) -> dict[str, Any]:
    """Play and learn.

    Raises:
        UserError: the game was not imported, or its starts or demonstration are missing.
    """
    latency = settings(
        "starfall", contender, None if injected_ticks else width, injected_ticks
    )
    with tempfile.TemporaryDirectory() as folder:
        here = [*latency, f"run.seed={seed}", f"run.state_dir={folder}", "run.tensorboard=false"]
        if game == TETRIS:
            return _tetris(here, Path(folder), minutes, updates)
        log = Path(folder) / "completed"
        # With a state directory of its own, the run no longer knows where the cartridges are.
        kwargs = _kwargs(
            start=_kept("starts", game), roms=_kept("roms"), game=ENCOUNTERS[game], log=log
        )
        config = load_config(None, [
            *here, "env.id=benchmarks.worlds.encounters:Encounters-v0", f"env.kwargs={kwargs}",
        ], {})
        if injected_ticks is None:
            found = learn(config, minutes, f"{game}, k={width}, {contender}, seed {seed}: ")
        else:
            found = learn_virtually(config, minutes, update_s=UPDATE_S)
        at_minutes = [ticks * TICK_S / 60.0 for ticks in completed(log)]
    return {
        "score": len(at_minutes), "updates": found["updates"], "completed_at_min": at_minutes,
        "inaction_percent": 100.0 * found["inaction_fraction"],
    }


def _tetris(
    common: list[str], folder: Path, minutes: float, updates: int
) -> dict[str, Any]:
    """Learn from the demonstration first, in the virtual time of a few ticks, then play."""
    kwargs = _kwargs(start=_kept("starts", TETRIS), roms=_kept("roms"))
    config = load_config(None, [
        *common, "env.id=rtagent/Tetris-v0", f"env.kwargs={kwargs}",
        f"learning.demonstrations={_kept('demonstrations', TETRIS)}",
    ], {})
    shown = config.model_copy(update={
        "inference": config.inference.model_copy(update={"algorithm": "adaptive"}),
        "learning": config.learning.model_copy(update={"updates_per_tick": 0.0}),
    })
    learned = folder / "shown"
    seconds, update_s = shown_for(updates)
    before = rtagent.virtual.run(
        shown, seconds=seconds, update_s=update_s, checkpoint_dir=learned
    )
    played = rtagent.virtual.run(
        config, seconds=60.0 * minutes, update_s=UPDATE_S, policy=newest(learned)
    )
    figures = played.figures()
    return {
        "score": float(np.mean(played.returns)) if len(played.returns) else None,
        "episodes": len(played.returns), "updates": figures["updates"],
        "updates_before_play": before.updates,
        "inaction_percent": 100.0 * figures["inaction_fraction"],
    }


def shown_for(updates: int) -> tuple[float, float]:
    """Seconds of a run in virtual time that makes so many updates, and of each of them."""
    ticks = math.ceil(updates / UPDATES_OF_A_TICK)
    return (1 + ticks) * TICK_S, ticks * TICK_S / updates


def _kept(*parts: str) -> Path:
    """What the user has put into the configured state directory.

    Raises:
        UserError: it is not there.
    """
    path = load_config().state_dir.joinpath(*parts)
    if not path.exists():
        raise UserError(f"{path} is missing; docs/how-to/experiments.md says what belongs there")
    return path


def _kwargs(**values: Any) -> str:
    """The arguments as a table of TOML."""
    return "{" + ", ".join(f'{name} = "{value}"' for name, value in values.items()) + "}"


def draw(results: Results, figure: Any) -> None:
    """Score and inaction of each game by width."""
    games = results.values("game")
    figure.set_figheight(4.0 * len(games))
    for row, game in zip(figure.subplots(len(games), 2, squeeze=False), games, strict=True):
        of_game, (left, _) = results.where(game=game), row
        draw_scores(row, of_game, "width", "width k of a ResNet", f"{game}: {MEASURES[game]}")
        if left.get_legend_handles_labels()[0]:
            left.legend()


EXPERIMENT = Experiment(trials, run, draw, size=(10.0, 4.0), wave=2)
