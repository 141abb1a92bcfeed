"""`rtagent regret`: what delay and inaction cost the policy of a checkpoint, in units of return.

The policy plays greedily in three worlds: live, on the wall clock; paused, with the delays that the
live world recorded; and paused, without delay. See `evaluation/regret.py`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from rtagent.cli.checkpoint_options import add_checkpoint_options, checkpoint_of
from rtagent.cli.evaluate import follow_ledger, live_run
from rtagent.cli.options import (
    add_json_option,
    add_picture_option,
    add_seconds_option,
    check_between,
    check_seconds,
    check_written,
)
from rtagent.cli.output import (
    UNKNOWN,
    own_stdout,
    percent,
    plain_table,
    progress_bar,
    report,
    rounded,
    stdout,
)
from rtagent.cli.regret_picture import draw
from rtagent.cli.stop_signal import StopSignal, catch_stop_signals
from rtagent.config import Config
from rtagent.config_sources import parse_config
from rtagent.env.adapter import Adapter, open_environment
from rtagent.env.reporting_adapter import ReportingAdapter
from rtagent.errors import UserError
from rtagent.evaluation import regret
from rtagent.evaluation.intervals import jackknife
from rtagent.evaluation.process import LONGEST_EPISODE_S, Values
from rtagent.evaluation.regret import Episodes, PausedWorld
from rtagent.evaluation.trained_policy import FOLDER, TrainedPolicy, configuration, load_checkpoint
from rtagent.memory.ledger import Ints, Rows
from rtagent.memory.process_metrics import EPISODES
from rtagent.policy.exploration import run_seed
from rtagent.staggering.arbiter import Source
from rtagent.storage.checkpoint import Checkpoint, newest

LEAST_EPISODES = 2
NAMES = {
    "paused": "R0 paused", "delayed": "R1 paused, recorded delays", "live": "R2 live",
    "reference": "R* reference, paused",
}
DIFFERENCES = {
    "delay": ("paused", "delayed"), "inaction": ("delayed", "live"),
    "learning": ("reference", "paused"),
}
ENDED_EARLY = f"ended before {LEAST_EPISODES} episodes were played in every world"
Figure = Callable[..., float]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add_checkpoint_options(parser)
    add("--episodes", metavar="N", type=int, default=10, help="episodes in each world (default 10)")
    add_seconds_option(parser, 300.0, "the live world ends after so long, whatever it has played")
    add("--reference", metavar="CHECKPOINT", type=Path,
        help="the best policy that is known, for the learning regret; default: it is unknown")
    add("--states", metavar="N", type=int, default=200,
        help="states to clone for the predictability (default 200); 0: none")
    add("--clones", metavar="K", type=int, default=16, help="clones of each state (default 16)")
    add_picture_option(parser, "draw bars with intervals")
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Play the three worlds and print their differences; Ctrl-C ends each early."""
    check_between("episodes", args.episodes, LEAST_EPISODES, EPISODES)
    check_between("states", args.states, 0, 100_000)
    check_between("clones", args.clones, 2, 10_000)
    check_seconds(args.seconds)
    check_written("--picture", args.picture)
    path, saved, config = checkpoint_of(args)
    if config.env.pending_actions:
        raise UserError(
            f"env.pending_actions = {config.env.pending_actions}: this policy must be told what is "
            "pending, and in a world that waits nothing is"
        )
    with own_stdout():
        measured = _measure(args, config, saved, path)
    result = {
        "checkpoint": str(path.absolute()), "updates": saved.counters.updates,
        "environment": saved.signature.environment, **measured,
    }
    if args.picture is not None:
        draw(args.picture, result, NAMES)
    report(args, result, lambda shown: _print(shown, args.picture))
    return 0


def _measure(
    args: argparse.Namespace, config: Config, saved: Checkpoint, path: Path
) -> dict[str, Any]:
    """Play the three worlds; returns the figures to print."""
    reference = None if args.reference is None else _reference(args, config)
    values = _greedy(config, saved, path)
    adapter = open_environment(config.env, ReportingAdapter)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    try:
        regret.check_cloning(adapter, config.env.id)
        with (
            catch_stop_signals(second_interrupts=True) as stop,
            progress_bar(*columns) as progress,
        ):
            rows, seed = play_live(config, saved, args.episodes, args.seconds, stop, progress)
            measurement = Measurement(adapter, seed, rows, args.episodes, stop, progress)
            measurement.play(values, reference)
            measurement.predict(values, args.states, args.clones)
    finally:
        adapter.close()
    return measurement.result()


def _reference(args: argparse.Namespace, config: Config) -> Values:
    """The answers of another checkpoint, in the same world."""
    path, saved = load_checkpoint(args.reference)
    world = [each for each in args.overrides if each.strip().startswith("env.")]
    own = configuration(saved, path, None, world)
    settings = {**own.model_dump(), "env": config.env.model_dump()}
    return _greedy(parse_config(settings), saved, path)


def _greedy(config: Config, saved: Checkpoint, path: Path) -> Values:
    """The greedy answers of a checkpoint.

    Raises:
        UserError: they depend on more than the observation.
    """
    acting = TrainedPolicy(config, saved, path).acting()
    if acting.state_size:
        raise UserError(
            f"{path}: this policy carries a state from one inference to the next, and what it says "
            "of a frame alone means nothing; evaluate it with: rtagent evaluate"
        )
    return acting.greedy


def play_live(
    config: Config, saved: Checkpoint, count: int, seconds: float, stop: StopSignal,
    progress: Progress,
) -> tuple[Rows, int]:
    """Play on the wall clock; the rows of its ledger, from the first tick on, and its seed."""
    task = progress.add_task(NAMES["live"], total=count)
    with live_run(config, saved, stop) as runtime:
        resumed = newest(runtime.world.config.state_dir / FOLDER)
        rows = follow_ledger(runtime, count, seconds, stop, partial(progress.advance, task))
    done = int(np.count_nonzero(rows["flags"]))
    if done < LEAST_EPISODES and stop.received:
        raise UserError(ENDED_EARLY)
    if done < LEAST_EPISODES:
        raise UserError(
            f"{done} of the {LEAST_EPISODES} episodes that are needed ended in the live world: "
            "more --seconds, or shorter episodes (for a Game Boy game env.kwargs.max_ticks)"
        )
    return rows, run_seed(config.run.seed, resumed)


class Measurement:
    """Plays the worlds that wait, and compares all of them.

    Args:
        adapter: the world that waits.
        seed: of the live world.
        rows: of the live world.
        episodes: wanted in each world.
        stop: ends it early.
        progress: shows how many episodes are played.
    """

    def __init__(
        self, adapter: Adapter, seed: int, rows: Rows, episodes: int, stop: StopSignal,
        progress: Progress,
    ) -> None:
        self._adapter, self._seed, self._stop = adapter, seed, stop
        self._progress = progress
        live = regret.live_episodes(rows)
        self._count = min(episodes, len(live.ticks))
        self._rows: Rows = rows[: int(live.ticks[: self._count].sum())]
        self._delays = regret.recorded_delays(self._rows)
        self._worlds: dict[str, Episodes] = {"live": live}
        self._starts: list[list[bytes]] = []
        self._rewards = float(rows["reward"].min()), float(rows["reward"].max())
        self._predictability: regret.Predictability | None = None

    def play(self, values: Values, reference: Values | None) -> None:
        """Play the worlds that wait, each for as many episodes as the live one."""
        paused = self._play("paused", values)
        delayed = self._play("delayed", values, self._delays.tolist())
        worlds = [paused, delayed]
        if reference is not None:
            worlds.append(self._play("reference", reference))
        # Alike where a world's seed alone decides how its episodes begin.
        self._starts = [paused.starts, delayed.starts]
        low, high = zip(self._rewards, *(each.rewards for each in worlds), strict=True)
        self._rewards = min(0.0, *low), max(0.0, *high)

    def _play(
        self, name: str, values: Values, delays: Sequence[int] | None = None
    ) -> PausedWorld:
        world = PausedWorld(
            self._adapter, values, self._seed, delays, lambda: not self._stop.received
        )
        task = self._progress.add_task(NAMES[name], total=self._count)
        self._worlds[name] = world.play(self._count, partial(self._progress.advance, task))
        return world

    def predict(self, values: Values, states: int, clones: int) -> None:
        """Measure the predictability, at states of the world without delay."""
        if not states:
            return
        rng = np.random.default_rng(self._seed)
        task = self._progress.add_task("cloned states", total=states)

        def go_on() -> bool:
            self._progress.advance(task)
            return not self._stop.received

        mean_gap = float(self._worlds["paused"].ticks.sum()) / states
        world = PausedWorld(self._adapter, values, self._seed)
        self._predictability = regret.predictability(world, mean_gap, states, clones, rng, go_on)

    def result(self) -> dict[str, Any]:
        """The figures to print.

        Raises:
            UserError: too few episodes were played in some world.
        """
        count = min(self._count, *(len(each.ticks) for each in self._worlds.values()))
        if count < LEAST_EPISODES:
            raise UserError(ENDED_EARLY)
        worlds = {name: each.first(count) for name, each in self._worlds.items()}
        # Fewer than were played live, if the worlds that wait were ended early.
        ticks = int(worlds["live"].ticks.sum())
        inaction = float((self._rows["source"][:ticks] == Source.DEFAULT).mean())
        delays = self._delays[:ticks]
        paused, delayed = (each[:count] for each in self._starts)
        return {
            "acting": "greedy", "episodes": count, "matched_starts": paused == delayed,
            "rate_hz": self._adapter.rate_hz,
            "worlds": {
                name: {**self._figures(each), "mean_ticks": float(each.ticks.mean()),
                       "returns": each.returns.tolist(),
                       "unfinished": int((~each.ended).sum())}
                for name, each in worlds.items()
            },
            "live": {
                "inaction_fraction": inaction,
                "delay_ticks": {"mean": float(delays.mean()), "max": int(delays.max()),
                                "p99": float(np.percentile(delays, 99))},
            },
            "regret": {
                name: self._figures(worlds[one], worlds[other]) if one in worlds else None
                for name, (one, other) in DIFFERENCES.items()
            },
            **self._bounds(inaction, delays, worlds["live"]),
        }

    def _figures(self, *worlds: Episodes) -> dict[str, Any]:
        """Return per episode and per second of a world, or of one world minus another."""
        samples = [np.column_stack((each.returns, each.ticks)) for each in worlds]
        rate_hz = self._adapter.rate_hz
        per = {
            "per_episode": lambda each: float(each[:, 0].mean()),
            "per_second": lambda each: float(each[:, 0].sum() / each[:, 1].sum()) * rate_hz,
        }
        return {name: jackknife(_difference(figure), *samples)._asdict()
                for name, figure in per.items()}

    def _bounds(self, inaction: float, delays: Ints, live: Episodes) -> dict[str, Any]:
        """The bounds of Theorem 1, in reward per second; an unknown one is None."""
        seen, declared = self._rewards, self._adapter.reward_range
        if declared is not None and not _within(seen, declared):
            # The environment does not keep to the range that it declares.
            declared = None
        low, high = declared or seen
        found = self._predictability
        per_second = (high - low) * self._adapter.rate_hz
        per_episode = float(live.ticks.mean()) / self._adapter.rate_hz

        delay = partial(regret.delay_bound, delays, reward_range=per_second)
        bounds = {
            "delay": None if found is None else delay(found.minimum),
            "delay_at_mean_predictability": None if found is None else delay(found.mean),
            "inaction": regret.inaction_bound(inaction, per_second), "learning": None,
        }
        return {
            "predictability": None if found is None else found._asdict(),
            "reward_range": {"low": low, "high": high, "declared": declared is not None},
            "bounds": {
                name: None if bound is None else
                {"per_second": bound, "per_episode": bound * per_episode}
                for name, bound in bounds.items()
            },
        }


def _within(seen: tuple[float, float], declared: tuple[float, float]) -> bool:
    """Whether rewards lie within a range, as float32: so the ledger has them, rounded."""
    least, low, high, most = np.array([declared[0], *seen, declared[1]], np.float32).tolist()
    return bool(least <= low <= high <= most)


def _difference(figure: Figure) -> Figure:
    return lambda one, other=None: figure(one) - (0.0 if other is None else figure(other))


def _print(result: dict[str, Any], picture: Path | None) -> None:
    console = stdout()
    matched = "starts matched" if result["matched_starts"] else "starts not matched"
    console.print(
        f"{result['environment']}, after {result['updates']} updates; greedy in all worlds, "
        f"{result['episodes']} episodes in each, {matched}; +- is half of a 95 % interval"
    )
    worlds = result["worlds"]
    rows = [
        (title, *_cells(worlds[name]), f"{worlds[name]['mean_ticks']:.0f}")
        for name, title in NAMES.items() if name in worlds
    ]
    console.print(plain_table("world", "per episode", "per second", "mean ticks", rows=rows))
    console.print()
    rows = []
    for name, (one, other) in DIFFERENCES.items():
        bound = result["bounds"][name]
        rows.append((
            f"{name} regret, {NAMES[one].split()[0]} - {NAMES[other].split()[0]}",
            *_cells(result["regret"][name]),
            rounded(bound and bound["per_second"], 4),
        ))
    console.print(plain_table("", "per episode", "per second", "bound per second", rows=rows))
    console.print()
    for line in _lines(result):
        console.print(line)
    if picture is not None:
        console.print(str(picture), soft_wrap=True)


def _lines(result: dict[str, Any]) -> list[str]:
    live, found, rewards = result["live"], result["predictability"], result["reward_range"]
    delay = live["delay_ticks"]
    kind = "declared" if rewards["declared"] else "observed, so the bounds are estimates"
    cut = ((NAMES[name], each["unfinished"]) for name, each in result["worlds"].items())
    lines = [
        *(f"{title}: {count} of the episodes did not end, and {'was' if count == 1 else 'were'} "
          f"cut after {LONGEST_EPISODE_S:.0f} s" for title, count in cut if count),
        f"live: inaction {percent(live['inaction_fraction'])}, delay {delay['mean']:.1f} ticks on "
        f"the mean, p99 {delay['p99']:.0f}",
        f"reward of a tick: {rewards['low']:g} to {rewards['high']:g}, {kind}",
    ]
    if found is None:
        return [*lines, f"predictability p: {UNKNOWN}"]
    at_mean = result["bounds"]["delay_at_mean_predictability"]["per_second"]
    return [
        *lines,
        f"predictability p: least {found['minimum']:.3f}, mean {found['mean']:.4f}, over "
        f"{found['states']} states, {found['clones']} clones each; with the mean in place of the "
        f"least, the bound of the delay is {rounded(at_mean, 4)} per second",
    ]


def _cells(figures: dict[str, Any] | None) -> tuple[str, str]:
    if figures is None:
        return UNKNOWN, UNKNOWN
    one, other = (
        f"{rounded(each['value'], 4)} +- {rounded(each['half_interval'], 2)}"
        for each in (figures["per_episode"], figures["per_second"])
    )
    return one, other
