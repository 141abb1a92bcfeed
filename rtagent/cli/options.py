"""Options and output that several commands share."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable
from math import isfinite
from typing import Any, TypeVar

from rich.console import Console, RenderableType
from rich.progress import Progress, ProgressColumn
from rich.table import Table

from rtagent.config import Config
from rtagent.config_sources import load_config
from rtagent.errors import UserError

T = TypeVar("T")
UNKNOWN = "unknown"
LONGEST_S = 3600.0


def known(value: object, form: str = "{}") -> str:
    """The value as text; one that is None or no finite number is called unknown."""
    absent = value is None or (isinstance(value, float) and not isfinite(value))
    return UNKNOWN if absent else form.format(value)


def add_config_options(parser: argparse.ArgumentParser, none: str = "the built-in game") -> None:
    """`--config FILE`, without which `none` is configured, and `--set SECTION.KEY=VALUE`."""
    add = parser.add_argument
    add("--config", metavar="FILE", help=f"a TOML file; default: {none}")
    add("--set", metavar="SECTION.KEY=VALUE", action="append", default=[], dest="overrides",
        help="one setting, stronger than the file and the environment; may be repeated")


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """`--json`."""
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")


def add_seconds_option(parser: argparse.ArgumentParser, default: float, meaning: str) -> None:
    """`--seconds S`."""
    parser.add_argument(
        "--seconds", type=float, default=default, metavar="S",
        help=f"{meaning} (default {default:g})",
    )


def check_seconds(seconds: float, longest: float = LONGEST_S) -> None:
    """Refuse a `--seconds` that is not above 0 and at most so long.

    Raises:
        UserError: it is not.
    """
    if not 0.0 < seconds <= longest:
        raise UserError(f"--seconds {seconds:g}: must be above 0, at most {longest:g}")


def check_between(option: str, value: float, least: float, most: float, unit: str = "") -> None:
    """Refuse the value of an option outside its bounds.

    Raises:
        UserError: it is outside, or NaN.
    """
    if not least <= value <= most:
        raise UserError(f"--{option} {value:.12g}: must be {least:g} to {most:.12g}{unit}")


def config_of(args: argparse.Namespace) -> Config:
    """The configuration that the options name.

    Raises:
        UserError: a setting is not acceptable.
    """
    return load_config(args.config, args.overrides)


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    print(json.dumps(value, indent=2, allow_nan=False))


def report(args: argparse.Namespace, value: T, show: Callable[[T], object]) -> None:
    """Print a value as JSON where `--json` asks for it; else show it to a person."""
    if args.json:
        print_json(value)
    else:
        show(value)


def plain_table(*columns: str, rows: Iterable[Iterable[RenderableType]] = ()) -> Table:
    """A table without a frame, as the shell's own tools print them."""
    table = Table(box=None, pad_edge=False, header_style="bold", show_header=any(columns))
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def stdout() -> Console:
    """Where tables go. Made anew each time, for tests replace `sys.stdout`."""
    return Console(highlight=False, markup=False, emoji=False)


def stderr() -> Console:
    """Where progress goes."""
    return Console(stderr=True, highlight=False)


def progress_bar(*columns: str | ProgressColumn) -> Progress:
    """A bar that is gone in the end, for a terminal only."""
    console = stderr()
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
