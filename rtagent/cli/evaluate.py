"""`rtagent evaluate`: how well the policy of a checkpoint plays, greedily.

Paused, the world waits for the policy: the returns are those of the policy alone. With `--live` it
plays on the wall clock, with as many inference processes as configured: the difference is what
delay and inaction cost this policy. An episode that does not end is cut (`longest_episode`); on the
wall clock it is the last one, for the world is not reset.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

from rtagent.cli.checkpoint_options import add_checkpoint_options, checkpoint_of
from rtagent.cli.evaluate_film import Film
from rtagent.cli.options import add_json_option, check_between, check_written
from rtagent.cli.output import (
    known,
    known_reward,
    own_stdout,
    percent,
    plain_table,
    progress_bar,
    report,
    stdout,
)
from rtagent.cli.stop_signal import StopSignal, catch_stop_signals
from rtagent.cli.train import wait_ready
from rtagent.clock import MonotonicClock
from rtagent.config import Config
from rtagent.env.adapter import open_environment
from rtagent.env.reporting_adapter import ReportingAdapter
from rtagent.errors import UserError
from rtagent.evaluation.process import (
    BY_COMMAND,
    LONGEST_EPISODE_S,
    Evaluator,
    Played,
    longest_episode,
    seed_of,
)
from rtagent.evaluation.regret import live_episodes
from rtagent.evaluation.trained_policy import FOLDER, TrainedPolicy, playing
from rtagent.memory.ledger import Rows
from rtagent.memory.process_metrics import EPISODES
from rtagent.runtime import Runtime
from rtagent.staggering.arbiter import Source
from rtagent.storage.checkpoint import Checkpoint, save
from rtagent.telemetry.verdicts import failure_in

POLL_S = 0.1
OnEpisode = Callable[[], object]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add_checkpoint_options(parser)
    add("--episodes", metavar="N", type=int, default=10, help="episodes to play (default 10)")
    add("--live", action="store_true", help="play on the wall clock, not in a world that waits")
    add("--seed", type=int, metavar="K",
        help="seed of the environment (default 0, with --live run.seed)")
    add("--video", metavar="FILE", type=Path, help="film the first episode, .mp4; not with --live")
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Play, and print the returns; Ctrl-C ends it early, with the episodes so far."""
    check_between("episodes", args.episodes, 1, EPISODES)
    if args.seed is not None and args.seed < 0:
        raise UserError(f"--seed {args.seed}: must not be negative")
    if args.live and args.video is not None:
        raise UserError("--video: the live world is not filmed; leave --live out")
    check_written("--video", args.video, (".mp4",))
    if args.live and args.seed is not None:
        args.overrides = [*args.overrides, f"run.seed={args.seed}"]
    path, saved, config = checkpoint_of(args)
    if config.env.pending_actions and not args.live:
        raise UserError(
            f"env.pending_actions = {config.env.pending_actions}: in a world that waits nothing is "
            "pending, and this policy has never seen that; evaluate it with --live"
        )
    columns = (TextColumn("episodes"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with (
        catch_stop_signals(second_interrupts=True) as stop, own_stdout(),
        progress_bar(*columns) as progress,
    ):
        on_episode = partial(progress.advance, progress.add_task("", total=args.episodes))
        if args.live:
            episodes, live = play_live(config, saved, args.episodes, stop, on_episode)
        else:
            policy, live = TrainedPolicy(config, saved, path), {}
            episodes = play_paused(
                config, policy, args.episodes, args.seed or 0, stop, on_episode, args.video
            )
    if not episodes:
        raise UserError("no episode was finished")
    result = summary(path, saved, episodes, live)
    report(args, result, lambda shown: _print(shown, args.video))
    return 0


def play_paused(
    config: Config, policy: TrainedPolicy, count: int, seed: int, stop: StopSignal,
    on_episode: OnEpisode, video: Path | None,
) -> list[Played]:
    """Play in a world that waits for the policy; film the first episode if `video` names a file."""
    adapter = open_environment(config.env, ReportingAdapter)
    try:
        acting = policy.acting()
        evaluator = Evaluator(adapter, acting.greedy, lambda: not stop.received, acting.forget)
        episodes: list[Played] = []
        for index in range(count):
            film = Film(video, adapter.rate_hz) if video is not None and index == 0 else None
            with film or contextlib.nullcontext():
                played = evaluator.play_episode(seed_of(seed, BY_COMMAND, index), film)
            if played is None:
                break
            episodes.append(played)
            on_episode()
        return episodes
    finally:
        adapter.close()


def play_live(
    config: Config, saved: Checkpoint, count: int, stop: StopSignal, on_episode: OnEpisode
) -> tuple[list[Played], dict[str, Any]]:
    """Play on the wall clock: the episodes, and their inaction and delay."""
    with live_run(config, saved, stop) as runtime:
        longest = longest_episode(runtime.world.blueprint.rate_hz)
        rows = follow_ledger(runtime, count, math.inf, stop, on_episode, longest)
    return found_live(rows, count)


def found_live(rows: Rows, count: int) -> tuple[list[Played], dict[str, Any]]:
    """At most so many episodes of what `follow_ledger` returns, their inaction and their delay."""
    live = live_episodes(rows).first(count)
    rest = rows[int(live.ticks.sum()) :] if len(live.ticks) < count else rows[:0]
    rows = rows[: int(live.ticks.sum()) + len(rest)]
    acted = rows["source"] != Source.DEFAULT
    delays = (rows["tick"] - rows["observed"])[acted]
    episodes = [
        Played(float(value), int(ticks), ended=True)
        for value, ticks in zip(live.returns, live.ticks, strict=True)
    ]
    if len(rest):
        total = float(rest["reward"].sum(dtype=np.float64))
        episodes.append(Played(total, len(rest), ended=False))
    return episodes, {
        "inaction_fraction": float(1.0 - acted.mean()) if len(rows) else None,
        "delay_ticks": float(delays.mean()) if len(delays) else None,
    }


def follow_ledger(
    runtime: Runtime, count: int, seconds: float, stop: StopSignal, on_episode: OnEpisode,
    longest: float = math.inf,
) -> Rows:
    """The rows of a live world's finished episodes, from its first tick until one of four limits.

    An episode is left out in which the environment's process has died.

    Args:
        runtime: the live world, just begun.
        count: it ends after so many episodes.
        seconds: it ends after so many seconds.
        stop: ends it early.
        on_episode: called for each episode that has ended.
        longest: it ends with the first `longest` ticks of an episode that lasts longer.

    Raises:
        UserError: the run or a process has failed; or the ledger is too small to read every tick.
    """
    clock, ledger = MonotonicClock(), runtime.world.ledger
    episodes = runtime.world.metrics.environment.episodes
    found: list[Rows] = [ledger.read(0, 0)]
    finished: list[int] = []
    following, seen, deadline = 0, 0, clock.now() + seconds
    playing, began, end = -1, 0, math.inf
    while len(finished) < count and clock.now() < deadline and not stop.received:
        clock.sleep_until(clock.now() + POLL_S)
        failure = failure_in(runtime.status())
        if failure is not None:
            raise UserError(failure)
        # Before the rows, which are written first.
        ended, seen = episodes.since(seen)
        rows = ledger.read(following, ledger.newest + 1)
        if len(rows) and len(rows) != rows["tick"][-1] + 1 - following:
            raise UserError("replay.capacity: too small to read every tick of the live world")
        following += len(rows)
        for _ in range(min(len(ended), count - len(finished))):
            on_episode()
        finished += ended["episode"].tolist()
        found.append(rows)
        if len(rows) and rows["episode"][-1] != playing:
            playing = int(rows["episode"][-1])
            began = int(rows["tick"][np.argmax(rows["episode"] == playing)])
        lasts = playing not in finished and following - began > longest
        if lasts and len(finished) < count:
            finished.append(playing)
            end = began + longest
            break
    every = np.concatenate(found)
    whole: Rows = every[np.isin(every["episode"], finished)]
    return whole[whole["tick"] < end]


@contextlib.contextmanager
def live_run(config: Config, saved: Checkpoint, stop: StopSignal) -> Iterator[Runtime]:
    """A run that acts greedily by a checkpoint, and learns nothing; it has begun to act."""
    with (
        state_dir_with(saved) as folder,
        Runtime(playing(config, run={"state_dir": folder})) as runtime,
    ):
        wait_ready(runtime, MonotonicClock(), stop)
        yield runtime


@contextlib.contextmanager
def state_dir_with(saved: Checkpoint) -> Iterator[str]:
    """A temporary state directory that holds a checkpoint.

    It is written from memory: meanwhile a daemon may have put another into its file.
    """
    with tempfile.TemporaryDirectory(prefix="rtagent-") as folder:
        save(Path(folder, FOLDER), saved)
        yield folder


def summary(
    path: Path, saved: Checkpoint, episodes: list[Played], live: dict[str, Any]
) -> dict[str, Any]:
    """The result to print: the returns, and of a live world its delay and inaction."""
    returns = np.array([each.total for each in episodes])
    error = float(returns.std(ddof=1) / np.sqrt(len(returns))) if len(returns) > 1 else None
    return {
        "checkpoint": str(path.absolute()), "updates": saved.counters.updates,
        "environment": saved.signature.environment, "world": "live" if live else "paused",
        "episodes": len(episodes), "mean_return": float(returns.mean()), "standard_error": error,
        "median_return": float(np.median(returns)), "least_return": float(returns.min()),
        "best_return": float(returns.max()),
        "mean_ticks": float(np.mean([each.ticks for each in episodes])),
        "unfinished": sum(not each.ended for each in episodes),
        **live, "played": [asdict(each) for each in episodes],
    }


def _print(result: dict[str, Any], video: Path | None) -> None:
    cut = result["unfinished"]
    rows = {
        "world": result["world"],
        "episodes": f"{result['episodes']}, {result['mean_ticks']:.0f} ticks on the mean"
        + (f"; {cut} did not end, and {'was' if cut == 1 else 'were'} cut after "
           f"{LONGEST_EPISODE_S:.0f} s" if cut else ""),
        "mean return": f"{known_reward(result['mean_return'])}, standard error "
        f"{known_reward(result['standard_error'])}",
        "median, least, best": ", ".join(
            known_reward(result[f"{name}_return"]) for name in ("median", "least", "best")
        ),
    }
    if "inaction_fraction" in result:
        rows["inaction"] = percent(result["inaction_fraction"])
        rows["delay"] = known(result["delay_ticks"], "{:.1f} ticks on the mean")
    console = stdout()
    console.print(f"{result['environment']}, after {result['updates']} updates")
    console.print(plain_table("", "", rows=rows.items()))
    for file in filter(None, (result["checkpoint"], video)):
        console.print(str(file), soft_wrap=True)
