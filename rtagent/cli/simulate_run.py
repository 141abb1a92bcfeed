"""`rtagent simulate --env ID`: a whole run in virtual time."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

from rtagent.cli.options import make_empty, option
from rtagent.cli.output import (
    known,
    known_reward,
    own_stdout,
    percent,
    plain_table,
    progress_bar,
    report,
    stderr,
    stdout,
)
from rtagent.cli.stop_signal import catch_stop_signals
from rtagent.clock import MonotonicClock
from rtagent.config import Config
from rtagent.config_sources import load_config
from rtagent.errors import UserError

if TYPE_CHECKING:
    from rtagent.virtual import VirtualRun

WHOLE_RUN = ("policy", "config", "overrides", "inference_ms", "update_ms", "save")
"""Options that go only with `--env`."""
TRAIN = "train"
LONGEST_MS = 3.6e6


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of a whole run."""
    add = parser.add_argument_group("a whole run").add_argument
    add("--env", metavar="ID", help="simulate environment, policy and learning, too")
    add("--policy", metavar="CHECKPOINT|train",
        help="a checkpoint that plays greedily, or train: learn from random weights; default: "
        "train")
    add("--config", type=Path, metavar="FILE",
        help="a TOML file; default: the checkpoint's own configuration, or the usual one")
    add("--set", metavar="SECTION.KEY=VALUE", action="append", dest="overrides",
        help="one setting, stronger than the file; may be repeated")
    add("--inference-ms", type=float, metavar="MS",
        help="length of an inference; injected latency counts where it is longer; default: "
        "measured, unless latency is injected")
    add("--update-ms", type=float, metavar="MS", help="length of an update; default: measured")
    add("--save", type=Path, metavar="DIR",
        help="an empty or new folder for a checkpoint of what was learned")


def check_absent(args: argparse.Namespace) -> None:
    """Refuse the options of a whole run.

    Raises:
        UserError: one of them was given.
    """
    for name in WHOLE_RUN:
        if getattr(args, name) is not None:
            shown = "set" if name == "overrides" else name
            raise UserError(f"{option(shown)}: give --env ID, too: it is for a whole run")


def run(args: argparse.Namespace) -> int:
    """Simulate and print the figures; Ctrl-C ends it early, with the figures so far."""
    # This imports torch, which takes seconds.
    from rtagent import virtual

    inference_s, update_s = (_seconds(args, name) for name in ("inference_ms", "update_ms"))
    config, policy = _configured(args)
    if config.r3.memory_budget_mb is not None:
        stderr().print("r3.memory_budget_mb is not applied: it depends on measured memory")
    if config.learning.evaluation_every_s:
        stderr().print("learning.evaluation_every_s is not applied: one policy plays at a time")
    if args.save is not None:
        make_empty("--save", args.save)
    clock = MonotonicClock()
    began = clock.now()
    columns = (TextColumn("{task.completed:.0f} of {task.total:.0f} s"), BarColumn(),
               TimeRemainingColumn())
    with (
        catch_stop_signals(second_interrupts=True) as stop, own_stdout(),
        progress_bar(*columns) as bar,
    ):
        task = bar.add_task("", total=args.seconds)

        def progress(at_s: float) -> bool:
            bar.update(task, completed=at_s)
            return stop.received

        found = virtual.run(
            config, seconds=args.seconds, seed=args.seed, policy=policy, inference_s=inference_s,
            update_s=update_s, checkpoint_dir=args.save, progress=progress,
        )
    report(args, _document(config, policy, found, clock.now() - began), _print)
    return 0


def _seconds(args: argparse.Namespace, name: str) -> float | None:
    """An option in milliseconds, as seconds."""
    value = getattr(args, name)
    if value is None:
        return None
    if not 0.0 < value <= LONGEST_MS:
        raise UserError(f"{option(name)} {value:.12g}: must be above 0, at most {LONGEST_MS:.12g}")
    return float(value) / 1e3


def _configured(args: argparse.Namespace) -> tuple[Config, Path | None]:
    """The configuration, and the checkpoint that plays, if one does."""
    overrides = [*(args.overrides or []), f"env.id={args.env}"]
    if args.policy in (None, TRAIN):
        return load_config(args.config, overrides), None
    if args.save is not None:
        raise UserError("--save: a checkpoint that plays learns nothing; give --policy train")
    from rtagent.evaluation.trained_policy import configuration, load_checkpoint, playing

    path, saved = load_checkpoint(Path(args.policy))
    return playing(configuration(saved, path, args.config, overrides)), path


def _document(
    config: Config, policy: Path | None, found: VirtualRun, took_s: float
) -> dict[str, Any]:
    """The result to print."""
    inference, update_s = config.inference, found.update_s
    return {
        "environment": config.env.id, "policy": TRAIN if policy is None else str(policy),
        "algorithm": inference.algorithm, "processes": inference.processes,
        "learners": config.learning.processes,
        "injected_latency_ms": inference.injected_latency_ms,
        "inference_ms": 1e3 * found.inference_s,
        "update_ms": None if update_s is None else 1e3 * update_s,
        **found.figures(), "virtual_s": len(found.rows) / found.rate_hz, "took_s": took_s,
    }


def _print(shown: dict[str, Any]) -> None:
    delays = sum(shown["delay_ticks"].values())
    rows = {
        "inaction": percent(shown["inaction_fraction"]),
        "strict inaction": percent(shown["strict_inaction_fraction"]),
        "interaction time, mean": known(shown["interaction_ms"], "{:.2f} ms"),
        "delay, mean": known(shown["delay_mean"], "{:.2f} ticks"),
        "delays": ", ".join(
            f"{delay}: {percent(count / delays)}" for delay, count in shown["delay_ticks"].items()
        ) or "none",
        "episodes": str(shown["episodes"]),
        "mean return": known_reward(shown["mean_return"]),
        "updates": str(shown["updates"]),
    }
    if shown["skipped"]:
        rows["updates"] += f", {shown['skipped']} left out as not finite"
    processes, learners = shown["processes"], shown["learners"]
    console = stdout()
    console.print(
        f"{shown['environment']}, {shown['algorithm']}, "
        f"{processes} process{'' if processes == 1 else 'es'}, "
        f"{learners} learner{'' if learners == 1 else 's'}: {shown['virtual_s']:.0f} s in "
        f"{shown['took_s']:.1f} s", soft_wrap=True,
    )
    inference_ms = max(shown["inference_ms"], shown["injected_latency_ms"])
    update = f", an update {shown['update_ms']:.3g} ms" if learners else ""
    console.print(f"an inference {inference_ms:.3g} ms{update}")
    console.print(plain_table("", "", rows=rows.items()))
