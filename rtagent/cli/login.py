"""`rtagent login`: an address that opens the dashboard once."""

from __future__ import annotations

import argparse

from rtagent.cli.daemon import add_state_dir_option, find_daemon
from rtagent.cli.options import add_json_option
from rtagent.cli.output import report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--end-all", action="store_true",
        help="end every session and every unused address instead: all browsers log in again",
    )
    add_state_dir_option(parser)
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Print an address, or end all sessions."""
    daemon = find_daemon(args.state_dir)
    if args.end_all:
        report(args, daemon.delete("/v1/sessions"), lambda answer: print(answer["ended"], "ended"))
    else:
        report(args, daemon.post("/v1/logins"), lambda answer: print(answer["url"]))
    return 0
