"""`rtagent learner`: start the learner of a Ray cluster, or find it, and print its figures."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rtagent.cli.output import json_text
from rtagent.cli.stop_signal import noted_interrupts
from rtagent.clock import Clock, MonotonicClock
from rtagent.cluster.held_folder import tell_nodes
from rtagent.cluster.ray_checks import LostError, NotStartedError
from rtagent.config import ClusterConfig
from rtagent.config_sources import load_config
from rtagent.errors import UserError
from rtagent.logs.printable import printable

PERIOD_S = 2.0
WHERE = "daemons with the same token join by --set cluster.address={}"
NOBODY = (
    "no daemon can join this learner, whose Ray has a token of its own: set RAY_AUTH_TOKEN before, "
    "or give --address HOST:PORT"
)
RAY_COUNTS = ("CPU", "GPU", "memory", "object_store_memory")
"""Resources that Ray finds on a machine by itself."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--address", metavar="ADDRESS",
        help="host:port of the Ray cluster's head; default: a Ray of this machine alone is "
        "started, which daemons can join if RAY_AUTH_TOKEN is set",
    )
    parser.add_argument(
        "--resources", metavar="NAME=AMOUNT", action="append", default=[], type=resource_of,
        help="what this machine adds to the cluster, a whole number of each, as learner=1; may be "
        "repeated with another name",
    )
    parser.add_argument(
        "--name", default=ClusterConfig().name,
        help="name of the learner, the cluster.name of the daemons (default: %(default)s)",
    )
    parser.add_argument(
        "--checkpoint-dir", metavar="DIR", type=Path,
        help="folder for the checkpoints of this learner alone, on the machine that it runs on; "
        "default: it writes none",
    )
    parser.add_argument("--json", action="store_true", help="a JSON document per line on stdout")


def run(args: argparse.Namespace) -> int:
    """Print a line every 2 s until Ctrl-C, which is how one leaves: the exit code is 0.

    A cluster that is lost meanwhile is joined anew as soon as it answers.

    Raises:
        UserError: bad options; there is no Ray, no cluster, or no place for a learner.
    """
    names = [name for name, _ in args.resources]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UserError(f"--resources {twice}: given more than once")
    given = {"name": args.name, "address": args.address}
    cluster = load_config({"cluster": given}, environ={}).cluster
    # The import takes a moment, and Ray need not be installed.
    from rtagent.cluster import ray_session

    token_known, out = ray_session.has_named_token(), sys.stdout
    if args.checkpoint_dir is not None:
        # The learner's working directory is that of its node.
        args.checkpoint_dir = args.checkpoint_dir.absolute()
        tell_nodes(cluster.name, args.checkpoint_dir, os.environ)

    def join() -> Callable[[], Mapping[str, Any]]:
        ray_session.connect(cluster.address, dict(args.resources) or None)
        if cluster.address is None:
            print(WHERE.format(ray_session.head()) if token_known else NOBODY, file=sys.stderr)
        return ray_session.find_learner(cluster.name, args.checkpoint_dir).status

    # Ray prints to stdout what happens to nodes of the cluster, between our lines.
    with contextlib.redirect_stdout(sys.stderr), noted_interrupts() as stop:
        try:
            told: str | None = None
            for report in follow(join, ray_session.disconnect, MonotonicClock()):
                other = other_folder(report, args.checkpoint_dir)
                if other is not None and other != told:
                    print(printable(told := other), file=sys.stderr)
                line = json_text(report) if args.json else in_a_line(report)
                print(line, file=out, flush=True)
                if stop.received:
                    break
        except KeyboardInterrupt:
            pass
        finally:
            ray_session.disconnect()
    return 0


def follow(
    join: Callable[[], Callable[[], Mapping[str, Any]]], leave: Callable[[], None], clock: Clock
) -> Iterator[dict[str, Any]]:
    """Report what a learner does, for ever; a cluster that is lost is joined anew.

    Args:
        join: joins the cluster, and returns a function that asks the learner for its status.
        leave: leaves the cluster.
        clock: time.

    Raises:
        UserError: at first the cluster cannot be joined, or the learner does not start or answer.
    """
    joined = False
    while True:
        try:
            for report in reports(join(), clock):
                joined = True
                yield report
        except UserError as error:
            leave()
            joined |= isinstance(error, LostError) and not isinstance(error, NotStartedError)
            if not joined:
                raise
            yield {"error": str(error)}
        clock.sleep_until(clock.now() + PERIOD_S)


def resource_of(text: str) -> tuple[str, float]:
    """Name and amount of `NAME=AMOUNT`.

    Raises:
        argparse.ArgumentTypeError: the text has another form, or Ray counts this resource itself.
    """
    name, _, amount = text.partition("=")
    if not name or not amount.isdecimal() or not int(amount):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not NAME=AMOUNT with a whole amount above 0, as learner=1"
        )
    if name in RAY_COUNTS:
        raise argparse.ArgumentTypeError(f"{text!r}: Ray counts {name} by itself; leave it out")
    return name, float(amount)


def reports(status: Callable[[], Mapping[str, Any]], clock: Clock) -> Iterator[dict[str, Any]]:
    """The learner's status every 2 s, for ever, with `batches_per_s` since the status before.

    Where the learner does not answer, the report says so, and it is asked again.

    Raises:
        LostError: the learner will not answer again.
        UserError: it does not answer at first.
    """
    before: tuple[float, int, str] | None = None
    due = clock.now()
    while True:
        report: dict[str, Any]
        try:
            report = {**status(), "batches_per_s": None}
        except UserError as error:
            if before is None or isinstance(error, LostError):
                raise
            report = {"error": str(error)}
        else:
            now, batches, which = clock.now(), report["batches"], report["incarnation"]
            # A learner that was started again counts from 0.
            if before is not None and which == before[2] and now > before[0]:
                report["batches_per_s"] = (batches - before[1]) / (now - before[0])
            before = now, batches, which
        yield report
        due = max(due + PERIOD_S, clock.now())
        clock.sleep_until(due)


def other_folder(report: Mapping[str, Any], wanted: Path | None) -> str | None:
    """What to say of a learner that was started before with another folder, or with none."""
    used = report.get("checkpoint_dir")
    if wanted is None or "error" in report or used == str(wanted):
        return None
    where = "writes no checkpoints" if used is None else f"writes its checkpoints into {used}"
    return f"the learner ran before this command, and {where}: {wanted} is for one that it starts"


def in_a_line(report: Mapping[str, Any]) -> str:
    """A report for people."""
    if "error" in report:
        return printable(report["error"])
    rate = report["batches_per_s"]
    nodes = [
        f"{each['id']}: share {each['share']}, {each['rate']:.1f} transitions/s"
        for each in report["nodes"]
    ]
    pace = "" if rate is None else f", {rate:.1f} per second"
    failed = [report["checkpoint_error"]] if report["checkpoint_error"] else []
    said = "; ".join([*(nodes or ["no node yet"]), *failed])
    return printable(f"{report['batches']} batches{pace}; {said}")
