"""Training loss and priorities on whole games, replay at the edge against replay at the learner.

The experiment `long-haul`, which says what is compared, on `ALE/Breakout-v5` and on the game that
comes with rtagent, with the values of the paper (S. Morishima and H. Matsutani,
doi:10.1109/ACCESS.2024.3402835, Sec. V-A and V-C): 84 x 84 pixels in stacks of 4, a dueling network
of 13 MB, Double DQN, n-step 3, 128 batches of 512 in an epoch, 8 actors or fewer, alpha = 1.52 with
8, weights every 16 batches, a replay of 65,536 or 8,192, which the baseline (`whole`) replaces
every 128 or 16 batches.

The paper learns for 100 epochs and 10 trials. Here a trial is as many epochs as take some ten
minutes of one core, so these are the beginnings of its figures. With `--quick` batches and replay
have an eighth of their size, and all ratios are the same. The plan begins with the edge and the
baseline on both games. Passes are in bfloat16. Actors give their episodes away when they end, so
each is cut after 2,000 ticks.
"""

from __future__ import annotations

import time as clocks
from collections.abc import Mapping
from typing import Any

from benchmarks.experiment import Experiment
from benchmarks.experiments.long_haul import BOTH, draw_figures, figures_of
from benchmarks.experiments.long_haul_trial import BATCHES, Setup
from benchmarks.results import Results

WORLDS = {"breakout": "ALE/Breakout-v5", "starfall": "rtagent/Starfall-v0"}
EDGE = Setup("edge", 8, 65_536, 3, 512, BATCHES, 0)
WHOLE = EDGE._replace(architecture="whole")
LEARNER = EDGE._replace(architecture="learner")
SMALL, SMALL_EVERY = EDGE.capacity // 8, 16
QUICK_BATCH = EDGE.batch_size // 8
STAGES: tuple[dict[str, Setup], ...] = (
    {"edge": EDGE, "whole": WHOLE},
    {"learner": LEARNER},
    {
        "edge, small replay": EDGE._replace(capacity=SMALL),
        "whole, small replay": WHOLE._replace(capacity=SMALL, transfer_every=SMALL_EVERY),
    },
    {"edge, 1 actor": EDGE._replace(actors=1), "whole, 1 actor": WHOLE._replace(actors=1)},
    {
        f"{name}, {actors} actors": each._replace(actors=actors)
        for actors in (4, 2) for name, each in (("edge", EDGE), ("whole", WHOLE))
    },
)
"""The plan: each stage is run on every world before the next stage."""
VARIANTS = {name: setup for stage in STAGES for name, setup in stage.items()}
GROUPS = {
    "Figs. 7, 8: three architectures": {**BOTH, "learner": "green"},
    "Figs. 11, 12: actors": {
        **BOTH,
        "edge, 4 actors": "dimgrey", "whole, 4 actors": "royalblue",
        "edge, 2 actors": "darkgrey", "whole, 2 actors": "cornflowerblue",
        "edge, 1 actor": "lightgrey", "whole, 1 actor": "skyblue",
    },
    "Figs. 13, 14: size of the replay": {
        **BOTH, "edge, small replay": "darkgrey", "whole, small replay": "skyblue",
    },
}


def trials(quick: bool) -> list[dict[str, Any]]:
    """Stage by stage."""
    batch = QUICK_BATCH if quick else EDGE.batch_size
    return [
        {"time": "virtual", "world": world, "variant": name, "batch": batch, "epochs": EDGE.epochs}
        for stage in STAGES for world in WORLDS for name in stage
    ]


def run(
    time: str, world: str, variant: str, batch: int, epochs: int, seed: int
) -> dict[str, Any]:
    """What `long-haul` tells of a trial, and the processor time that it took."""
    begun = clocks.process_time()
    setup = scaled(VARIANTS[variant], batch)._replace(world=world, epochs=epochs, seed=seed)
    figures = figures_of(setup, f"{world}, {variant}")
    return {**figures, "processor_s": round(clocks.process_time() - begun, 1)}


def scaled(setup: Setup, batch: int) -> Setup:
    """The same with other batches, and a replay of as many of them."""
    return setup._replace(batch_size=batch, capacity=setup.capacity // setup.batch_size * batch)


def draw(results: Results, figure: Any) -> None:
    """The paper's figures of each world, one below the other."""
    draw_worlds(results, figure, GROUPS)


def draw_worlds(
    results: Results, figure: Any, groups: Mapping[str, Mapping[str, str]]
) -> None:
    """Draw what `draw_figures` draws, for each world, one below the other."""
    parts = figure.subfigures(len(WORLDS), 1)
    batches = "/".join(map(str, results.values("batch")))
    for part, (world, name) in zip(parts, WORLDS.items(), strict=True):
        told = f"{name}, batches of {batches}"
        draw_figures(results.where(world=world), part, groups, told)


EXPERIMENT = Experiment(trials, run, draw, size=(17, 15))
