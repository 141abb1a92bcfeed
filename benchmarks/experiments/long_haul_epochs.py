"""As many epochs on whole games as the long-haul paper's, at an eighth of its batches and replay.

The experiment `long-haul-games` says what is compared. Its trials have the paper's sizes and end
after three epochs, where the paper's losses separate after forty. These have the sizes of its
`--quick` and go on for a hundred, so the last half is the paper's, epochs 51 to 100. Edge and
baseline alone, with 8 actors; `--quick` ends after ten epochs.
"""

from __future__ import annotations

from typing import Any

from benchmarks.experiment import Experiment
from benchmarks.experiments.long_haul import BOTH
from benchmarks.experiments.long_haul_games import QUICK_BATCH, WORLDS, draw_worlds, run
from benchmarks.results import Results

EPOCHS, QUICK_EPOCHS = 100, 10


def trials(quick: bool) -> list[dict[str, Any]]:
    """One game after the other."""
    common = {"batch": QUICK_BATCH, "epochs": QUICK_EPOCHS if quick else EPOCHS}
    return [
        {"time": "virtual", "world": world, "variant": variant, **common}
        for world in WORLDS for variant in BOTH
    ]


def draw(results: Results, figure: Any) -> None:
    """The paper's Figs. 7 to 10 of each world, one below the other."""
    draw_worlds(results, figure, {"Figs. 7, 8: over epochs": BOTH})


EXPERIMENT = Experiment(trials, run, draw, size=(11, 15))
