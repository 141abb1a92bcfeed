"""Duel at an injected latency of 5 ticks: encounters won while learning, staggered and sequential.

For each seed two whole daemons play the game of progress on the wall clock and learn, one with as
many staggered inference processes as the latency needs, the other with a single one, everything
else alike, side by side, so that both see the same machine. An encounter won or caught counts as
won, and leads to the next. Both begin with a demonstration in their replay, as Tetris does in
Riemer et al., Realtime Reinforcement Learning, App. C: a scripted player, as late as they are and
deciding as seldom as they do (`--demonstrated 0`: without). So demonstrations have the same share
in what each of them learns from, at any time, and both look equally far ahead, since gamma and
n-step count ticks. The picture shows the wins over time, mean and 95 % interval over the seeds, as
their Fig. 3 does.

    python -m benchmarks.duel [--minutes M] [--seeds S ...] [--jobs N] [--demonstrated TICKS]
        [--picture PATH] [--save PATH] [--resume] [--set SECTION.KEY=VALUE ...] [--json]
    python -m benchmarks.duel --policies [--games N] [--json]

With `--policies` nothing is learned and no clock runs: scripted players show what the encounters
ask for.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import rtagent
from benchmarks.comparison import (
    COLOURS,
    TICK_S,
    add_output,
    half_interval,
    processes_of,
    save,
    saved_runs,
    settings_of,
    side_by_side,
)
from benchmarks.duel_demonstration import ENVIRONMENT, record
from benchmarks.duel_players import Player, competent, masher, play, random_player, view_of
from benchmarks.learning import learn
from rtagent.cli.jitter import measure_jitter
from rtagent.env.gameboy.duel import ENCOUNTERS, Duel
from rtagent.errors import UserError
from rtagent.storage.demonstration_file import SUFFIX

TICKS_OF_LATENCY = 5
DELAY_TICKS = TICKS_OF_LATENCY + 1
SELDOM = DELAY_TICKS
"""Ticks between two decisions of the player for the single process, which itself decides at every
fifth: one more, so that it sees what its last key has done, and does not press it again."""
# An encounter lasts some hundred ticks and is rewarded at its end: long sums, a discount that sees
# so far, and a distribution rather than a mean, which would hide how little a single tick matters.
COMMON = (
    f"env.id={ENVIRONMENT}",
    "learning.algorithm=c51",
    "learning.v_min=-1.0",
    "learning.v_max=1.0",
    "learning.gamma=0.997",  # per tick: a horizon of 333 ticks, 5.6 s
    "learning.n_step=32",
    "policy.epsilon_steps=2500",
    # Whoever is stuck in a menu comes out of it.
    "policy.epsilon_end=0.15",
    "policy.exploration_hold_ticks=4",
    # The cores are shared: with as many updates as the machine gives, the figure would be of that.
    "learning.updates_per_tick=0.12",
)
SHOWN = ("policy.epsilon_start=0.15", "learning.demonstration_margin=0.3")
"""Who has been shown how need not begin at random."""
LAST_MINUTES = 5.0
CURVE_POINTS = 200
PLAYERS: dict[str, Callable[[int], Player]] = {
    "random": random_player,
    "A, A, A": lambda seed: masher,
    "competent": lambda seed: competent,
}
GROUPS = ((1, 4), (5, 8), (9, 16), (17, 32), (33, 48), (49, 64))
LONGEST_SEQUENCE = 80_000


class Shown(NamedTuple):
    """What a contender is shown.

    Attributes:
        path: a demonstration.
        interval: ticks from one decision in it to the next.
        decisions: how many those are, about.
    """

    path: Path
    interval: int
    decisions: int


def run_one(
    name: str, seed: int, minutes: float, shown: Shown | None, overrides: list[str]
) -> dict[str, Any]:
    """Play and learn; the seconds at which an encounter was won, and a few figures.

    Args:
        name: of the contender.
        seed: of the run.
        minutes: how long.
        shown: to begin with.
        overrides: `SECTION.KEY=VALUE`, stronger than the run's own.
    """
    begin = () if shown is None else (
        f"learning.demonstrations={shown.path}",
        f"learning.demonstration_interval={shown.interval}", *SHOWN,
    )
    with tempfile.TemporaryDirectory() as folder:
        config = rtagent.load_config(
            overrides=[
                *COMMON, *settings_of(name, TICKS_OF_LATENCY), *begin, *overrides,
                f"run.seed={seed}", f"run.state_dir={folder}",
            ]
        )
        begun = time.monotonic()
        run = learn(config, minutes, f"{name:11} seed {seed}: ")
    returns = [value for _, value in run["episodes"]]
    won = [second for second, value in run["episodes"] if value > 0]
    decisions = 0 if shown is None else shown.decisions
    late = [second for second in won if second > 60.0 * (minutes - LAST_MINUTES)]
    return {
        "contender": name,
        "seed": seed,
        "won_at_s": won,
        "lost": sum(value < 0 for value in returns),
        "out_of_time": sum(value == 0 for value in returns),
        "won_per_minute": len(won) / minutes,
        "won_per_minute_at_the_end": len(late) / min(minutes, LAST_MINUTES),
        "inaction_fraction": run["inaction_fraction"],
        "demonstrated_share": decisions / (decisions + run["decisions"]),
        "updates": run["updates"],
        "took_s": time.monotonic() - begun,
    }


def curves(
    runs: list[dict[str, Any]], minutes: float
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Encounters won over time.

    Returns:
        Minutes, mean over the runs, and half of the 95 % interval (0 for a single run).
    """
    times = np.linspace(0.0, minutes, CURVE_POINTS)
    counts = np.array(
        [np.searchsorted(np.array(run["won_at_s"]) / 60.0, times, side="right") for run in runs]
    )
    return times, counts.mean(axis=0), half_interval(counts)


def draw(runs: list[dict[str, Any]], minutes: float, path: Path) -> None:
    """Encounters won against wall-clock time."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.5))
    for name, colour in COLOURS.items():
        own = [run for run in runs if run["contender"] == name]
        if not own:
            continue
        times, mean, half = curves(own, minutes)
        processes = processes_of(name, TICKS_OF_LATENCY)
        label = f"{name}, {processes} process{'es' if processes > 1 else ''}"
        axes.plot(times, mean, color=colour, label=label)
        axes.fill_between(times, mean - half, mean + half, color=colour, alpha=0.2, linewidth=0)
    axes.set(xlabel="minutes of wall-clock time", ylabel="encounters won", ylim=(0, None))
    axes.set_title(f"Duel, latency of {TICKS_OF_LATENCY} ticks (injected)")
    axes.legend(loc="upper left")
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def demonstrate(folder: Path, name: str, seed: int, ticks: int) -> Shown | None:
    """What a contender is shown; none if that is nothing.

    Who decides at every fifth tick is shown as many decisions as it makes in the time in which the
    other one makes `ticks`.
    """
    if not ticks:
        return None
    interval = SELDOM if processes_of(name, TICKS_OF_LATENCY) == 1 else 1
    decisions = ticks if interval == 1 else ticks // TICKS_OF_LATENCY
    path = folder / f"{name}-{seed}{SUFFIX}"
    won = record(path, decisions * interval, DELAY_TICKS, seed, interval)
    print(f"{name}, seed {seed}: shown {won:.1f} won per minute", file=sys.stderr)
    return Shown(path, interval, decisions)


def describe(run: dict[str, Any]) -> str:
    """A run on one line."""
    return (
        f"{run['contender']:11} seed {run['seed']}: won {len(run['won_at_s']):4d} "
        f"({run['won_per_minute']:.2f} per minute, "
        f"{run['won_per_minute_at_the_end']:.2f} at the end), lost {run['lost']}, "
        f"out of time {run['out_of_time']}, {run['updates']} updates, "
        f"{100 * run['demonstrated_share']:.0f} % demonstrated, "
        f"inaction {100 * run['inaction_fraction']:.1f} %, {run['took_s']:.0f} s"
    )


def compare(args: argparse.Namespace) -> int:
    """Run every seed of both contenders; 1 if staggering does not win more encounters."""
    conditions = {
        "minutes": args.minutes, "demonstrated": args.demonstrated, "overrides": args.overrides
    }
    runs = saved_runs(args, conditions)
    kept = {**conditions, "runs": runs}
    print(f"machine floor (bare loop): {measure_jitter(3.0)}", file=sys.stderr)
    done = {(run["contender"], run["seed"]) for run in runs}
    with tempfile.TemporaryDirectory() as folder:
        for first in range(0, len(args.seeds), args.jobs):
            seeds = args.seeds[first : first + args.jobs]
            wave = [pair for pair in product(COLOURS, seeds) if pair not in done]
            calls = {
                f"{name}, seed {seed}": partial(
                    run_one, name, seed, args.minutes,
                    demonstrate(Path(folder), name, seed, args.demonstrated), args.overrides,
                )
                for name, seed in wave
            }
            for run in side_by_side(calls) if calls else ():
                runs.append(run)
                print(describe(run), file=sys.stderr)
                save(args.save, kept)
                if args.picture:
                    draw(runs, args.minutes, args.picture)
    passed, line = judge(runs, args.seeds)
    print(f"{line}: {'ok' if passed else 'MISSED'}", file=sys.stderr)
    if args.json:
        print(json.dumps({**kept, "passed": passed}))
    return int(not passed)


def judge(runs: list[dict[str, Any]], seeds: list[int]) -> tuple[bool, str]:
    """Whether staggering wins more encounters per minute, and the two rates in words.

    A comparison that lacks a run is not passed.
    """
    rates = {
        name: float(
            np.mean([run["won_per_minute"] for run in runs if run["contender"] == name] or [0.0])
        )
        for name in COLOURS
    }
    whole = len(runs) == len(COLOURS) * len(seeds)
    line = ", ".join(f"{name} {rate:.2f} per minute" for name, rate in rates.items())
    return whole and rates["staggered"] > rates["sequential"], line


def win_rates(env: Duel, games: int) -> list[dict[str, Any]]:
    """How often each player wins, and how long it takes, by group of encounters."""
    rows = []
    for first, last in GROUPS:
        row: dict[str, Any] = {"encounters": [first, last]}
        for name, player in PLAYERS.items():
            rng = np.random.default_rng(first)
            outcomes = [
                play(env, player(game), int(rng.integers(first, last + 1)), seed=game)
                for game in range(games)
            ]
            row[name] = {
                "won": float(np.mean([reward > 0 for reward, _ in outcomes])),
                "ticks": float(np.mean([ticks for _, ticks in outcomes])),
            }
        rows.append(row)
    return rows


def whole_sequence(env: Duel) -> dict[str, int]:
    """The competent player from the first encounter to the last."""
    _, info = env.reset(seed=0)
    view, losses = view_of(env), 0
    for tick in range(LONGEST_SEQUENCE):
        _, reward, decided, truncated, info = env.step(competent(view, tick))
        losses += reward < 0
        if decided and reward > 0 and info["encounter"] == ENCOUNTERS:
            break
        if decided or truncated:
            env.reset()
    return {"encounter": info["encounter"], "ticks": tick + 1, "losses": losses}


def show_policies(args: argparse.Namespace) -> int:
    """Print what the scripted players reach."""
    begun = time.monotonic()
    env = Duel()
    rows = win_rates(env, args.games)
    sequence = whole_sequence(env)
    env.close()
    took = time.monotonic() - begun
    if args.json:
        print(json.dumps({"groups": rows, "sequence": sequence, "took_s": took}))
        return 0
    print(f"{'won (ticks)':12}" + "".join(f"{name:>16}" for name in PLAYERS))
    for row in rows:
        first, last = row["encounters"]
        cells = [f"{100 * row[name]['won']:.0f} % ({row[name]['ticks']:.0f})" for name in PLAYERS]
        print(f"{first:2d} to {last:2d}    " + "".join(f"{cell:>16}" for cell in cells))
    print(
        f"competent, in sequence: encounter {sequence['encounter']} after {sequence['ticks']} "
        f"ticks ({sequence['ticks'] * TICK_S / 60:.1f} minutes), {sequence['losses']} losses; "
        f"took {took:.0f} s"
    )
    return 0


def main() -> int:
    """Compare, or show the scripted players."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--jobs", type=int, default=1, help="seeds that run side by side")
    parser.add_argument("--demonstrated", type=int, default=32_000, metavar="TICKS")
    add_output(parser)
    parser.add_argument("--policies", action="store_true", help="scripted players, offline")
    parser.add_argument("--games", type=int, default=10, help="per player and group")
    parser.add_argument("--set", action="append", default=[], dest="overrides")
    args = parser.parse_args()
    try:
        return show_policies(args) if args.policies else compare(args)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
