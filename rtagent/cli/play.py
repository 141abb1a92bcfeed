"""`rtagent play`: watch the policy of a checkpoint play, live, on the dashboard."""

from __future__ import annotations

import argparse

from rtagent.cli.checkpoint_options import add_checkpoint_options, checkpoint_of
from rtagent.cli.evaluate import state_dir_with
from rtagent.cli.options import check_between
from rtagent.cli.serve import add_log_options, serve
from rtagent.evaluation.trained_policy import playing


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_checkpoint_options(parser)
    add = parser.add_argument
    add("--port", metavar="P", type=int,
        help="port to bind; 0: a free one; default: service.port where it is --set, else 0")
    add_log_options(parser)


def run(args: argparse.Namespace) -> int:
    """Play until SIGINT or SIGTERM: greedily, on the wall clock, and without learning.

    The run has a state directory of its own, which is removed at the end.
    """
    given: list[str] = []
    if args.port is not None:
        check_between("port", args.port, 0, 65_535)
        given = [f"service.port={args.port}"]
    # The run's daemon may have the port that the checkpoint says.
    args.overrides = ["service.port=0", *args.overrides, *given]
    _, saved, config = checkpoint_of(args)
    service = {
        "host": "127.0.0.1", "insecure": False,
        # That of the run may be on another machine, and nobody else gets here.
        "certificate": None, "private_key": None,
    }
    with state_dir_with(saved) as folder:
        own = playing(config, run={"state_dir": folder}, service=service)
        return serve(own, quiet=args.quiet, log_format=args.log_format)
