"""What commands print: a table, a bar or a JSON document."""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from decimal import Decimal
from math import isfinite
from typing import IO, Any, TextIO, TypeVar, cast

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.progress import Progress, ProgressColumn
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from rtagent.logs.printable import printable
from rtagent.telemetry.rewards import reward_text
from rtagent.telemetry.shares import rounded_share

T = TypeVar("T")
UNKNOWN = "unknown"
UNFOLDED = 1 << 20
"""Columns, more than any line has."""


def known(value: object, form: str = "{}") -> str:
    """The value as text, or "unknown" for None and for a number that is not finite."""
    absent = value is None or (isinstance(value, float) and not isfinite(value))
    return UNKNOWN if absent else form.format(value)


def percent(share: float | None) -> str:
    """A share, or "unknown" as in `known`."""
    return known(share if share is None else rounded_share(share), "{:.2%}")


def known_reward(value: float | None) -> str:
    """A sum of rewards, or "unknown" as in `known`."""
    text = known(value)
    return text if value is None or text == UNKNOWN else reward_text(value)


def rounded(value: float | None, digits: int) -> str:
    """A number with so many significant digits and no exponent, or "unknown" as in `known`."""
    text = known(value, f"{{:.{digits}g}}")
    return text if text == UNKNOWN else f"{Decimal(text):f}"


def milliseconds(value: float | None, places: int, unit: str = " ms") -> str:
    """A time with so many places; below 1 ms with two digits, for it may be some microseconds."""
    if value is None or value >= 1.0:
        return known(value, f"{{:.{places}f}}{unit}")
    return rounded(value, 2) + unit


def json_text(value: Any, indent: int | None = None) -> str:
    """A value as JSON; a number that is not finite is null there, as it is unknown in `known`."""
    return json.dumps(finite(value), indent=indent, allow_nan=False)


def finite(value: Any) -> Any:
    """A value as JSON has it, with None in place of each number in it that is not finite."""
    return json.loads(json.dumps(value), parse_constant=lambda _: None)


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    print(json_text(value, indent=2))


def report(args: argparse.Namespace, value: T, show: Callable[[T], object]) -> None:
    """Print a value as JSON where `--json` asks for it; else show it to a person."""
    if args.json:
        print_json(value)
    else:
        show(value)


class _Table(Table):
    """Without the spaces that fill up its lines: where a line is longer, they would wrap, too."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        segments = cast("Iterable[Segment]", super().__rich_console__(console, options))
        for line in Segment.split_lines(segments):
            while line and not line[-1].text.rstrip():
                line.pop()
            yield from line[:-1]
            for last in line[-1:]:
                yield last._replace(text=last.text.rstrip())
            yield Segment.line()


def plain_table(*columns: str, rows: Iterable[Iterable[RenderableType]] = ()) -> Table:
    """A table without a frame, as the shell's own tools print them."""
    table = _Table(box=None, pad_edge=False, header_style="bold", show_header=any(columns))
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


@contextmanager
def own_stdout() -> Iterator[None]:
    """Inside, what an environment, a library or a new child process prints goes to stderr.

    So stdout holds the result of the command alone.
    """
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        # A library in C has a buffer of its own.
        ctypes.CDLL(None).fflush(None)
        os.dup2(kept, 1)
        os.close(kept)


class _Console(Console):
    """Leaves a closed pipe to `main`, as `print` does: Rich would end the program with code 1."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def stdout() -> Console:
    """The console for tables, made anew each time, for tests replace `sys.stdout`.

    A terminal gets lines that fit it, a file or a pipe whole lines.
    """
    console = _Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = UNFOLDED
    return console


class _Lossy:
    """A file that drops what it cannot take, for progress is not worth ending a command.

    A disk may be full, a terminal gone, or a reader such as `tee` ended by the same Ctrl-C.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, text: str) -> int:
        with suppress(OSError):
            self._file.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._file.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def stderr() -> Console:
    """The console for progress."""
    return _Console(file=cast("IO[str]", _Lossy(sys.stderr)), highlight=False)


@contextmanager
def spinner(text: str) -> Iterator[Callable[[str], None]]:
    """A line that says what is being done, for a terminal only; gives what changes the text."""
    # The usual one is in Braille, which a terminal may lack.
    with stderr().status(Text(printable(text)), spinner="line") as line:
        yield lambda other: line.update(Text(printable(other)))


def progress_bar(*columns: str | ProgressColumn) -> Progress:
    """A bar that disappears at its end, for a terminal only; without columns those of Rich."""
    console = stderr()
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
