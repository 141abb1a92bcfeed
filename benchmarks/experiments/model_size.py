"""Play while learning by model size and by latency: staggered beside sequential inference.

Figs. 3, 4, 8 and 9 of Riemer et al., Realtime Reinforcement Learning, on rtagent's own games. The
`policy` is a ResNet of width k that is really computed, on the wall clock, with as many staggered
processes as keep up, and no more than there are cores; or the default network at a latency that is
injected, in ticks, and named so, in virtual time, where an update takes 30 ms: how a larger one
fares on a machine that has the processes for it. The text of the paper prints no time for its
largest model, k = 98, and no core here carries it: that latency is worked out from that of k = 29.
It has 256 processes, the most there can be, where the formula asks for 340. Sequential is one
process that infers, then waits for an update, as in the paper. Both contenders look equally far
ahead, for gamma and n-step count ticks; on the wall clock they run side by side. Exploration is
included.

    starfall   mean return of the episodes that end in the last third; the policies that are random
               or do nothing play offline
    duel       encounters won per minute; from nothing (with a demonstration: experiment `duel`)
"""

from __future__ import annotations

import tempfile
from typing import Any

import rtagent
from benchmarks.comparison import COLOURS, draw_scores, processes_of, settings_of
from benchmarks.experiment import Experiment
from benchmarks.experiments.duel import COMMON as DUEL
from benchmarks.learning_runs import OFFLINE, late_return, learn, learn_virtually, play_offline
from benchmarks.results import Results
from rtagent.config.section import MAX_INFERENCE_PROCESSES

WIDTHS = (1, 7, 29)
TICKS = (0.5, 2, 5, 10, 20, 30)
LARGEST_TICKS = 309
"""Of k = 98: the 453 ms that k = 29 takes in bfloat16 on one core (measured on a virtual machine of
two cores), times (98 / 29)^2, the ratio of their multiply-adds; 5.2 s."""
UPDATE_S = 0.03
"""About what a batch of 16 takes a ResNet of k = 1 on one core."""
GAMES = {"starfall": "mean return, last third", "duel": "encounters won per minute"}
CONTENDERS = tuple(COLOURS)
SIZES = {
    "width": "width k of a ResNet that is computed here, wall clock",
    "ticks": "injected latency in ticks, virtual time",
}


def trials(quick: bool) -> list[dict[str, Any]]:
    """Both contenders of a policy are neighbours: they make a wave."""
    minutes = {"starfall": 0.5 if quick else 8.0, "duel": 0.5 if quick else 20.0}
    injected = {f"{ticks:g} ticks injected": ticks for ticks in (TICKS[2:3] if quick else TICKS)}
    injected[f"k=98, {LARGEST_TICKS} ticks injected"] = LARGEST_TICKS
    policies: dict[str, dict[str, Any]] = {
        **{f"k={width}": {"width": width} for width in (WIDTHS[:1] if quick else WIDTHS)},
        **{name: {"ticks": ticks} for name, ticks in injected.items()},
    }
    played = [
        {"time": "virtual" if "ticks" in size else "wall clock", "game": game, "policy": policy,
         "contender": contender, "minutes": minutes[game], **size}
        for game in GAMES for policy, size in policies.items() for contender in CONTENDERS
    ]
    offline = [
        {"time": "none", "game": "starfall", "policy": "none", "contender": name}
        for name in OFFLINE
    ]
    return played + offline


def settings(game: str, contender: str, width: int | None, ticks: float | None) -> list[str]:
    """The settings as overrides."""
    common = list(DUEL) if game == "duel" else ["learning.updates_per_tick=0.3"]
    if ticks is not None:
        most = min(processes_of(contender, ticks), MAX_INFERENCE_PROCESSES)
        return [*common, *settings_of(contender, ticks), f"inference.processes={most}"]
    algorithm, processes = "adaptive", "auto"
    if contender == "sequential":
        algorithm, processes = "sequential-infer-learn", "1"
    return [
        *common, "policy.network=resnet", f"policy.width={width}",
        f"inference.algorithm={algorithm}", f"inference.processes={processes}",
    ]


def run(
    game: str, contender: str, seed: int, minutes: float = 0.0, width: int | None = None,
    ticks: float | None = None, **named: Any,
) -> dict[str, Any]:
    """Play and learn, or play offline."""
    if contender in OFFLINE:
        return {"score": play_offline(contender, seed)}
    with tempfile.TemporaryDirectory() as folder:
        config = rtagent.load_config(None, [
            *settings(game, contender, width, ticks), f"run.seed={seed}",
            f"run.state_dir={folder}", "run.tensorboard=false",
        ], {})
        if named["time"] == "virtual":
            found = learn_virtually(config, minutes, update_s=UPDATE_S)
        else:
            found = learn(config, minutes, f"{game}, {named['policy']}, {contender}, seed {seed}: ")
    return {
        "score": score(game, found["episodes"], minutes),
        "inaction_percent": 100.0 * found["inaction_fraction"],
        "updates": found["updates"], "episodes": found["episodes"],
    }


def score(game: str, episodes: list[tuple[float, float]], minutes: float) -> float:
    """What the run is judged by.

    Args:
        game: its name.
        episodes: end (s) and return of each.
        minutes: length of the run.

    Raises:
        RuntimeError: no episode counts.
    """
    if game == "duel":
        return sum(value > 0 for _, value in episodes) / minutes
    return late_return(episodes, minutes)


def draw(results: Results, figure: Any) -> None:
    """Scores and inaction by width and by latency."""
    parts = [
        (game, size) for game in results.values("game") for size in SIZES
        if results.where(game=game).values(size)
    ]
    figure.set_figheight(4.5 * len(parts))
    panels = figure.subplots(len(parts), 2, squeeze=False)
    for row, (game, size) in zip(panels, parts, strict=True):
        here, (left, _) = results.where(game=game), row
        draw_scores(row, here, size, SIZES[size], f"{game}: {GAMES[game]}")
        for contender, style in zip(OFFLINE, (":", "--"), strict=True):
            point = here.where(contender=contender).point("score")
            if point:
                left.axhline(point.mean, color="grey", linestyle=style, label=contender)
        left.legend(fontsize=8)
    figure.suptitle("mean and 95 % interval over seeds")


EXPERIMENT = Experiment(trials, run, draw, size=(10.0, 4.5), wave=2)
