"""`rtagent doctor`: what this machine can do, and what to mend."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import asdict

from rtagent.cli.daemon import add_state_dir_option
from rtagent.cli.doctor_machine import CHECKS, jitter, state_directory
from rtagent.cli.doctor_remote import remote_policy
from rtagent.cli.doctor_wake_up import cpu_sleep, wake_ups
from rtagent.cli.jitter import measure_jitter
from rtagent.cli.options import (
    add_config_options,
    add_json_option,
    add_seconds_option,
    check_seconds,
    config_of,
)
from rtagent.cli.output import progress_bar, report
from rtagent.cli.verdicts import show
from rtagent.errors import UserError, reason_of
from rtagent.testing.report import Check

EXIT_BAD = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_seconds_option(parser, 10.0, "how long to measure the jitter")
    add_config_options(
        parser, "none; it sets the limits of the state directory and names the policy server"
    )
    add_state_dir_option(parser)
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Look at everything; 0 unless something is bad."""
    seconds: float = args.seconds
    check_seconds(seconds)
    config = config_of(args)
    checks = [*map(outcome, CHECKS), state_directory(config), *remote_policy(config)]
    with progress_bar() as bar:
        task = bar.add_task("measuring the jitter", total=seconds)
        try:
            measured = measure_jitter(
                seconds, lambda elapsed: bar.update(task, completed=min(elapsed, seconds))
            )
        except (OSError, UserError) as error:
            checks.append(prevented("jitter", error))
        else:
            checks += [jitter(measured), wake_ups(measured), cpu_sleep(measured)]
    report(args, [asdict(check) for check in checks], lambda _: show(checks))
    return EXIT_BAD if any(check.verdict == "bad" for check in checks) else 0


def outcome(check: Callable[[], Check]) -> Check:
    """What a check finds; bad if the system withholds what it needs."""
    try:
        return check()
    except (OSError, UserError) as error:
        return prevented(check.__name__.replace("_", " "), error)


def prevented(name: str, error: OSError | UserError) -> Check:
    """A check that could not be made, because the system withholds what it needs."""
    if isinstance(error, UserError):
        found, _, advice = str(error).partition(": ")
    else:
        file = "" if error.filename is None else f"{error.filename}: "
        found = f"{file}{reason_of(error)}"
        advice = "see whether a sandbox, a limit or how /proc is mounted withholds it"
    return Check(name, "bad", found, advice)
