"""`rtagent train`: learn for a while without the HTTP service, and write the results."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Column

from rtagent.cli.options import (
    add_config_options,
    add_json_option,
    check_seconds,
    config_of,
    make_empty,
)
from rtagent.cli.output import (
    known,
    known_reward,
    own_stdout,
    percent,
    plain_table,
    report,
    spinner,
    stderr,
    stdout,
)
from rtagent.cli.stop_signal import StopSignal, catch_stop_signals
from rtagent.clock import Clock, MonotonicClock
from rtagent.config import Config
from rtagent.errors import UserError
from rtagent.runtime import Runtime
from rtagent.storage import checkpoint
from rtagent.telemetry import learning_curve
from rtagent.telemetry.event_log import EVENTS_FILE, read_events
from rtagent.telemetry.process import EPISODES_FILE
from rtagent.telemetry.sinks import TENSORBOARD_DIR
from rtagent.telemetry.verdicts import failure_in

LONGEST_S = 366 * 86_400.0
MOST_UPDATES = 10**12
POLL_S = 0.25
SAMPLE_S = 1.0
BOOT_S = 120.0
LAST_EPISODES = 20
PICTURE = "learning.png"


@dataclass(frozen=True)
class Goal:
    """When training ends: after so many seconds, or else so many updates applied in this run."""

    seconds: float | None = None
    updates: int | None = None

    @property
    def total(self) -> float:
        """The value of `done` at the end."""
        return float(self.seconds if self.seconds is not None else self.updates or 0)

    def done(self, seconds: float, updates: int) -> float:
        """How much of `total` is done."""
        return min(self.total, float(updates) if self.seconds is None else seconds)


@dataclass(frozen=True)
class Outcome:
    """How training went.

    Attributes:
        history: figures over time.
        stats: the newest figures.
        before: updates before this run.
        failure: why it ended early. If None, it did not.
    """

    history: learning_curve.History
    stats: dict[str, Any]
    before: int
    failure: str | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    limit = parser.add_mutually_exclusive_group(required=True)
    limit.add_argument("--seconds", type=float, metavar="S", help="seconds to train")
    limit.add_argument("--updates", type=int, metavar="N", help="updates to apply")
    add_config_options(parser)
    add("--state-dir", metavar="DIR", type=Path,
        help="folder for checkpoints and records; default: run.state_dir")
    add("--out", metavar="DIR", type=Path,
        help="an empty or new folder for the results; default: the run's folder in the state dir")
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Train, and print where the results are."""
    goal, config = goal_of(args), _configured(args)
    if args.out is not None:
        make_empty("--out", args.out)
    clock = MonotonicClock()
    # A second Ctrl-C must not cut short the last checkpoint, nor the results.
    with catch_stop_signals() as stop, own_stdout():
        with Runtime(config) as runtime:
            with spinner("starting"):
                wait_ready(runtime, clock, stop)
            outcome = follow(runtime, goal, clock, stop)
        results = write_results(config, runtime.run_dir, args.out, outcome.history)
    summary = summary_of(outcome, updates_written(runtime.run_dir))
    summary |= _returns(Path(results["episodes_file"]))
    # The file may lack the first episodes, and has those that ended after the last look.
    count = outcome.stats["episodes"]["count"]
    summary["episodes"] = max(count, summary["episodes_kept"])
    summary["learning_starts"] = config.learning.learning_starts
    result = {"run_id": runtime.run_id, **summary, **results}
    report(args, result, lambda _: _print(summary, results))
    if outcome.failure is not None:
        raise UserError(f"training ended early: {outcome.failure}")
    return 0


def goal_of(args: argparse.Namespace) -> Goal:
    """The limit that the options name.

    Raises:
        UserError: it is out of bounds.
    """
    if args.seconds is not None:
        check_seconds(args.seconds, LONGEST_S)
    if args.updates is not None and not 0 < args.updates <= MOST_UPDATES:
        raise UserError(f"--updates {args.updates}: must be above 0, at most {MOST_UPDATES}")
    return Goal(args.seconds, args.updates)


def _configured(args: argparse.Namespace) -> Config:
    config = config_of(args)
    if not config.learning.processes:
        raise UserError("learning.processes = 0: nothing would learn")
    if config.learning.paused:
        raise UserError("learning.paused = true: nothing would learn, and nobody can resume it")
    if not config.run.tensorboard:
        raise UserError("run.tensorboard = false: the results are made of what it records")
    return config


def wait_ready(runtime: Runtime, clock: Clock, stop: StopSignal) -> None:
    """Wait until the agent acts; a signal to stop before that leaves nothing to write down.

    Raises:
        UserError: a process keeps failing, or the agent does not act for too long.
    """
    began, limit_s = clock.now(), BOOT_S
    while not stop.received:
        try:
            runtime.wait_ready(POLL_S)
            return
        except TimeoutError as error:
            _, _, lacking = str(error).partition(": ")
        world = runtime.world
        if world is None:
            # Environment and network are being tried out, which has a limit of its own.
            began = clock.now()
        else:
            # The first tick is two ticks ahead, and each process first acts on another frame.
            ticks = 2 + world.control.desired.processes
            limit_s = BOOT_S + ticks * world.blueprint.tick_seconds
        failure = failure_in(runtime.status())
        if failure is None and clock.now() > began + limit_s:
            failure = f"the agent does not act after {limit_s:.0f} s: {lacking}"
        if failure is not None:
            raise UserError(failure)
    raise KeyboardInterrupt


def follow(runtime: Runtime, goal: Goal, clock: Clock, stop: StopSignal) -> Outcome:
    """Show how training goes, until the goal, a signal to stop, or until it cannot go on."""
    history, stats = learning_curve.History(SAMPLE_S), runtime.stats()
    before = stats["learning"]["updates"] - _applied(runtime)
    columns = (
        BarColumn(10),
        TaskProgressColumn(table_column=Column(min_width=4)),
        TimeRemainingColumn(table_column=Column(min_width=7)),
        TextColumn("{task.fields[figures]}", table_column=Column(ratio=1, no_wrap=True)),
    )
    start, console = clock.now(), stderr()
    with Progress(
        *columns, console=console, refresh_per_second=4, expand=True,
        disable=not console.is_terminal,
    ) as progress:
        task = progress.add_task("training", total=goal.total, figures="")
        while not stop.received:
            try:
                stats, failure = runtime.stats(), failure_in(runtime.status())
            except UserError as error:
                return Outcome(history, stats, before, str(error))
            seconds = clock.now() - start
            applied = _applied(runtime)
            # What is applied between the two looks makes the difference smaller.
            before = max(before, stats["learning"]["updates"] - applied)
            # Episodes count from the first tick, too; it may be long until all processes act.
            history.add(stats["clock"]["uptime_s"], stats)
            done = goal.done(seconds, applied)
            progress.update(task, completed=done, figures=live_figures(stats))
            if failure is not None or done >= goal.total:
                return Outcome(history, stats, before, failure)
            clock.sleep_until(clock.now() + POLL_S)
    return Outcome(history, stats, before)


def _applied(runtime: Runtime) -> int:
    """Updates that all learners have applied in this run."""
    return sum(each.applied for each in runtime.world.metrics.learners)


def live_figures(stats: Mapping[str, Any]) -> str:
    """The figures beside the progress bar; a missing figure is called unknown."""
    learning, r3 = stats["learning"], stats["r3"]
    parts = [
        f"{known(learning['updates_per_s'], '{:.1f}')} updates/s",
        f"return {known_reward(stats['episodes']['mean_return_100'])}",
        f"inaction {percent(stats['actions']['inaction_fraction_60s'])}",
        f"batch {known(learning['batch_size'])}",
    ]
    if r3["time_ratio"] is not None:
        met, missed = r3["horizons"]["met"] or 0, r3["horizons"]["missed"] or 0
        parts.append(
            f"time {known(r3['time_ratio'], '{:.0%}')}, data {known(r3['data_ratio'], '{:.0%}')}, "
            f"{met} of {met + missed} met"
        )
    return ", ".join(parts)


def updates_written(run_dir: Path) -> int | None:
    """Updates before the newest checkpoint that a run has written; None if it is not known."""
    try:
        events = read_events(run_dir / EVENTS_FILE, 1, kinds=("checkpoint",))
    except UserError:
        return None
    return int(events[0]["updates"]) if events else None


def summary_of(outcome: Outcome, written: int | None) -> dict[str, Any]:
    """The final figures of the run, as plain values.

    `written` is the number of updates before the last checkpoint, until which the learners went on
    after the last look at the figures.
    """
    stats = outcome.stats
    updates = max(stats["learning"]["updates"], written or 0)
    return {
        "seconds": stats["clock"]["uptime_s"],
        "ticks": stats["clock"]["ticks"],
        "replay_ticks": stats["replay"]["size"],
        "updates": updates,
        "updates_in_this_run": updates - outcome.before,
        "samples": stats["learning"]["samples_consumed"],
        "inaction_fraction": stats["actions"]["inaction_fraction"],
        "horizons": stats["r3"]["horizons"],
    }


def _returns(path: Path) -> dict[str, Any]:
    returns = learning_curve.read_episodes(path).returns
    last = returns[-LAST_EPISODES:]
    return {
        "episodes_kept": len(returns),
        f"mean_return_last_{LAST_EPISODES}": float(last.mean()) if len(last) else None,
        "best_return": float(returns.max()) if len(returns) else None,
    }


def write_results(
    config: Config, run_dir: Path, out: Path | None, history: learning_curve.History
) -> dict[str, Any]:
    """Draw the picture, and copy all results to `out`; without it they stay in the run's folder.

    Returns:
        The paths of `picture`, the learning curve; `episodes_file`, CSV: tick, length, return,
        seconds; folder `tensorboard`; the newest `checkpoint`, None if there is none.

    Raises:
        UserError: something cannot be written.
    """
    folder = out or run_dir
    saved = checkpoint.newest(config.state_dir / "checkpoints")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if out is not None:
            with suppress(FileNotFoundError):
                for table in run_dir.glob(f"{EPISODES_FILE}*"):
                    shutil.copy2(table, out)
                shutil.copytree(run_dir / TENSORBOARD_DIR, out / TENSORBOARD_DIR)
            if saved is not None and not saved.parent.samefile(out):
                saved = Path(shutil.copy2(saved, out))
        episodes = learning_curve.read_episodes(folder / EPISODES_FILE)
        learning_curve.draw(folder / PICTURE, config.env.id, episodes, history)
    except shutil.Error as error:
        # Its argument has a triple for each file: source, target, reason.
        raise UserError(f"cannot write the results into {folder}: {error.args[0][0][2]}") from None
    except OSError as error:
        raise UserError(f"cannot write the results into {folder}: {error.strerror}") from None
    return {
        "picture": str(folder / PICTURE), "episodes_file": str(folder / EPISODES_FILE),
        "tensorboard": str(folder / TENSORBOARD_DIR), "checkpoint": saved and str(saved),
    }


def updates_line(summary: Mapping[str, Any]) -> str:
    """How many updates there were, and why there were none if the replay held too few ticks."""
    applied, starts = summary["updates_in_this_run"], summary["learning_starts"]
    counts = f"{applied} in this run, {summary['updates']} in all"
    if applied or summary["replay_ticks"] >= starts:
        return counts
    return f"{counts}; learning.learning_starts = {starts} ticks were not reached"


def _print(summary: Mapping[str, Any], results: Mapping[str, Any]) -> None:
    console, horizons = stdout(), summary["horizons"]
    last = f"mean_return_last_{LAST_EPISODES}"
    kept = summary["episodes_kept"]
    # There may have been fewer; of none, the mean is unknown.
    meant = min(kept, LAST_EPISODES) or LAST_EPISODES
    of_kept = f" of the last {kept}" if kept < summary["episodes"] else ""
    rows = {
        "trained for": f"{known(summary['seconds'], '{:.1f} s')}, {summary['ticks']} ticks",
        "updates": updates_line(summary),
        "episodes": f"{summary['episodes']}",
        f"mean return of the last {meant}": known_reward(summary[last]),
        f"best return{of_kept}": known_reward(summary["best_return"]),
        "inaction": percent(summary["inaction_fraction"]),
    }
    if horizons["met"] is not None:
        rows["horizons"] = f"{horizons['met']} met, {horizons['missed']} missed"
    console.print(plain_table("", "", rows=rows.items()), "")
    for path in filter(None, results.values()):
        # Not wrapped, however narrow the terminal is, so that paths can be copied.
        console.print(path, soft_wrap=True)
