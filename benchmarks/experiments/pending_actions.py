"""Pending actions: returns of policies that are told what comes before their action, and not.

CartPole at 200 Hz and Starfall, each behind an injected latency of five ticks that staggered
processes hide: every tick is acted on, some six to eight ticks late. Starfall is played with the
default stack of four frames, which shows what the last ticks did, with the newest frame alone, and
with positions in place of pictures.
A trial is two runs with the same seed, alike but for `env.pending_actions`: on the wall clock two
daemons side by side, in virtual time one after the other. The figure of each is the mean return of
the episodes that end in the last third, exploration included, and `difference` has the interval
that counts: it is paired.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import rtagent
from benchmarks.comparison import figures_of_all, processes_of
from benchmarks.experiment import Experiment
from benchmarks.learning_runs import EXAMPLES, learn, learn_virtually
from benchmarks.paired_curves import draw_pair, figures_of
from benchmarks.results import Results
from rtagent.config import GAME_BOY_HZ

TICKS = 5.0
COUNT = 8
"""Pending actions that are observed: an action comes about as many ticks late."""
PANELS_IN_A_ROW = 2
EXAMPLE = EXAMPLES / "cartpole.toml"
CONTENDERS = {"with": COUNT, "without": 0}


class World(NamedTuple):
    """What is played.

    Attributes:
        file: file of the configuration. If None, the defaults, which play Starfall.
        settings: overrides for both contenders, `SECTION.KEY=VALUE`.
        rate_hz: ticks per second.
        minutes: length of a run.
        update_s: time of an update in virtual time: about what it takes on one core.
        bound: overrides that limit the updates in virtual time, each of which is computed.
    """

    file: Path | None
    settings: tuple[str, ...]
    rate_hz: float
    minutes: float
    update_s: float
    bound: tuple[str, ...]


_STARFALL = World(None, (), GAME_BOY_HZ, 8.0, 0.03, ("learning.updates_per_tick=0.3",))
_POSITIONS = (
    "env.id=benchmarks.worlds.starfall_positions:StarfallPositions-v0",
    f"env.rate_hz={GAME_BOY_HZ}", "env.default_action=noop",
)
WORLDS = {
    "cartpole": World(EXAMPLE, (), 200.0, 5.0, 0.002, ()),
    "starfall": _STARFALL,
    "starfall-stack-1": _STARFALL._replace(settings=("env.frame_stack=1",)),
    "starfall-positions": World(EXAMPLE, _POSITIONS, GAME_BOY_HZ, 30.0, 0.002, ()),
}


def trials(quick: bool) -> list[dict[str, Any]]:
    """All worlds in virtual time, where no machine is too busy, then on the wall clock."""
    return [
        {"world": name, "time": time, "minutes": 1.0 if quick else world.minutes}
        for time in ("virtual", "wall clock") for name, world in WORLDS.items()
    ]


def settings(world: World, count: int, seed: int) -> list[str]:
    """What makes a contender, as `SECTION.KEY=VALUE`."""
    return [
        *world.settings,
        f"inference.injected_latency_ms={1e3 * TICKS / world.rate_hz:.3f}",
        f"inference.processes={processes_of('staggered', TICKS)}",
        f"env.pending_actions={count}", f"run.seed={seed}",
    ]


def play(name: str, time: str, minutes: float, contender: str, seed: int) -> dict[str, Any]:
    """One run; its figures, by names that end in the contender's."""
    world = WORLDS[name]
    with tempfile.TemporaryDirectory() as folder:
        bound = world.bound if time == "virtual" else ()
        config = rtagent.load_config(
            world.file,
            [*settings(world, CONTENDERS[contender], seed), *bound, f"run.state_dir={folder}"], {},
        )
        if time == "virtual":
            run = learn_virtually(config, minutes, update_s=world.update_s)
        else:
            run = learn(config, minutes, f"{name} {contender}, seed {seed}: ")
    return figures_of(contender, run, minutes)


def run(world: str, time: str, minutes: float, seed: int) -> dict[str, Any]:
    """Both contenders."""
    calls = {name: partial(play, world, time, minutes, name, seed) for name in CONTENDERS}
    at_once = 1 if time == "virtual" else len(calls)
    figures = figures_of_all(calls, at_once)
    return {"difference": figures["return_with"] - figures["return_without"], **figures}


def draw(results: Results, figure: Any) -> None:
    """The learning curves of both, and what the difference is."""
    conditions = dict.fromkeys(
        (trial["params"]["world"], trial["params"]["time"]) for trial in results.trials
    )
    columns = min(len(conditions), PANELS_IN_A_ROW)
    rows = -(-len(conditions) // columns)
    figure.set_figheight(figure.get_figheight() * rows)
    for place, (world, time) in enumerate(conditions, 1):
        own, axes = results.where(world=world, time=time), figure.add_subplot(rows, columns, place)
        draw_pair(axes, own, tuple(CONTENDERS), f"{world}, {time}")


EXPERIMENT = Experiment(trials, run, draw, size=(15, 4.5), seeds=(0, 1, 2, 3, 4), wave=1)
