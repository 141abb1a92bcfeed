"""The command line that all benchmarks share, and how they print a result."""

from __future__ import annotations

import argparse
import math
import signal
import sys
from collections.abc import Callable, Collection, Mapping
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from rtagent.cli import EXIT_BROKEN_PIPE, EXIT_USER_ERROR, Parser, discard_stdout
from rtagent.cli.options import check_written, why_unwritable
from rtagent.cli.output import print_json
from rtagent.cli.stop_signal import stop_signals
from rtagent.errors import UserError
from rtagent.logs.printable import printable
from rtagent.processes.interrupts import EXIT_INTERRUPTED

Number = TypeVar("Number", int, float)
Result = Mapping[str, Any]


def command_line(description: str | None) -> argparse.ArgumentParser:
    """A parser that takes `--json`, described by the first line of a text.

    A number has to be above 0, unless the type of its option is `from_zero`. From now on a mistake
    of the user ends the program in one line, and a signal or a closed pipe without any.
    """
    sys.excepthook = _end
    if isinstance(sys.stdout, TextIOWrapper):
        # Else the interpreter would find the pipe closed, after the last line.
        sys.stdout.reconfigure(line_buffering=True)
    for number in stop_signals():
        signal.signal(number, signal.default_int_handler)
    parser = Parser(
        f"rtagent bench {Path(sys.argv[0]).stem}", description=(description or "").splitlines()[0]
    )
    parser.register("type", int, partial(_above_zero, int))
    parser.register("type", float, partial(_above_zero, float))
    parser.add_argument("--json", action="store_true")
    return parser


def _end(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if isinstance(error, UserError):
        print(f"rtagent: {printable(str(error))}", file=sys.stderr)
        raise SystemExit(EXIT_USER_ERROR)
    if isinstance(error, KeyboardInterrupt):
        raise SystemExit(EXIT_INTERRUPTED)
    if isinstance(error, BrokenPipeError):
        discard_stdout()
        raise SystemExit(EXIT_BROKEN_PIPE)
    sys.__excepthook__(kind, error, trace)


def _above_zero(kind: Callable[[str], float], text: str) -> float:
    value = kind(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text}: must be above 0")
    return value


def at_least(least: Number) -> Callable[[str], Number]:
    """The type of an option below which there would be nothing to measure."""
    kind = type(least)

    def number(text: str) -> Number:
        value = kind(text)
        if not least <= value < math.inf:
            raise argparse.ArgumentTypeError(f"{text}: must be at least {least}")
        return value

    return number


def from_zero(text: str) -> int:
    """The type of an option that takes a whole number, 0 included, such as a seed."""
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text}: must be a whole number, 0 or more")
    return int(text)


def new_file(text: str) -> Path:
    """The type of an option that names a file to be written at the end."""
    path = Path(text)
    if why := why_unwritable(path):
        raise argparse.ArgumentTypeError(f"{text}: cannot be written: {why}")
    return path


def new_picture(text: str) -> Path:
    """The type of an option that names a picture to be drawn at the end."""
    path = Path(text)
    check_written("--picture", path)
    return path


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
    parser.add_argument("--seed", type=from_zero, default=0)
    args = parser.parse_args()
    return report(run(args.minutes, args.seed), args.json, show)
