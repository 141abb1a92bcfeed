"""`rtagent doctor`: what this machine can do, and what to mend."""

from __future__ import annotations

import argparse

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from rtagent.cli.checks import CHECKS, jitter, state_directory
from rtagent.cli.jitter import Jitter, measure_jitter
from rtagent.cli.options import (
    add_config_options,
    add_json_option,
    config_of,
    plain_table,
    print_json,
    stderr,
    stdout,
)
from rtagent.cli.wake_up_checks import cpu_sleep, wake_ups
from rtagent.errors import UserError

DEFAULT_SECONDS = 10.0
LONGEST_S = 3600.0
EXIT_BAD = 1
_STYLES = {"ok": "green", "warn": "yellow", "bad": "bold red"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--seconds", type=float, default=DEFAULT_SECONDS, metavar="S",
        help=f"how long to measure the jitter (default {DEFAULT_SECONDS:g})",
    )
    add_config_options(parser, "the default limits of the state directory")
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Look at everything; 0 unless something is bad."""
    if not 0.0 < args.seconds <= LONGEST_S:
        raise UserError(f"--seconds {args.seconds:g}: must be above 0, at most {LONGEST_S:g}")
    checks = [*(check() for check in CHECKS), state_directory(config_of(args))]
    measured = _jitter_with_progress(args.seconds)
    checks += [jitter(measured), wake_ups(measured), cpu_sleep(measured)]
    if args.json:
        print_json([check.as_dict() for check in checks])
    else:
        table = plain_table("", "", "")
        for check in checks:
            told = f"{check.found}\n{check.advice}" if check.advice else check.found
            table.add_row(Text(check.verdict, _STYLES[check.verdict]), check.name, told)
        stdout().print(table)
    return EXIT_BAD if any(check.verdict == "bad" for check in checks) else 0


def _jitter_with_progress(seconds: float) -> Jitter:
    """What takes time; a bar meanwhile, if somebody watches."""
    console = stderr()
    with Progress(
        TextColumn("measuring the jitter"), BarColumn(), TimeRemainingColumn(),
        console=console, transient=True, disable=not console.is_terminal,
    ) as bar:
        task = bar.add_task("", total=seconds)
        return measure_jitter(
            seconds, lambda elapsed: bar.update(task, completed=min(elapsed, seconds))
        )
