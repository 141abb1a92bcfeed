"""The command line that all benchmarks share, and how they print a result."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from rtagent.cli import Parser
from rtagent.cli.output import print_json

Result = Mapping[str, Any]


def command_line(description: str | None) -> argparse.ArgumentParser:
    """A parser that takes `--json`, described by the first line of a text."""
    parser = Parser(
        f"rtagent bench {Path(sys.argv[0]).stem}", description=(description or "").splitlines()[0]
    )
    parser.add_argument("--json", action="store_true")
    return parser


def add_names(parser: argparse.ArgumentParser, metavar: str, names: Collection[str]) -> None:
    """Let a command take some of `names`, all by default, as `names`.

    Not as `choices`, with which argparse refuses to be given none.
    """

    def known(name: str) -> str:
        if name not in names:
            raise argparse.ArgumentTypeError(f"unknown: {name!r}; known are {', '.join(names)}")
        return name

    parser.add_argument(
        "names", nargs="*", type=known, default=list(names), metavar=metavar, help="default: all"
    )


def print_lines(result: Result) -> None:
    """Print one line for each value."""
    for name, value in result.items():
        print(f"{name:18} {value}")


def report(result: Result, as_json: bool, show: Callable[[Result], object] = print_lines) -> int:
    """Print a result, as JSON or by `show`; exit code 1 unless it says that it has `passed`."""
    if as_json:
        print_json(result)
    else:
        show(result)
    return int(not result["passed"])


def long_run(
    description: str | None, run: Callable[[float, int], Result], show: Callable[[Result], object]
) -> int:
    """The command of a benchmark that disturbs a daemon; `run` is given minutes and a seed."""
    parser = command_line(description)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    return report(run(args.minutes, args.seed), args.json, show)
