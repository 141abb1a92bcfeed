"""Options and output that several commands share."""

from __future__ import annotations

import argparse
import json
from typing import Any

from rich.console import Console
from rich.table import Table

from rtagent.config import Config
from rtagent.config_sources import load_config

UNKNOWN = "unknown"


def known(value: object, form: str = "{}") -> str:
    """The value as text; one that is None is called unknown."""
    return UNKNOWN if value is None else form.format(value)


def add_config_options(parser: argparse.ArgumentParser, none: str = "the built-in game") -> None:
    """`--config FILE` and `--set SECTION.KEY=VALUE`.

    Args:
        parser: of the command.
        none: what is configured without a file.
    """
    parser.add_argument("--config", metavar="FILE", help=f"a TOML file; default: {none}")
    parser.add_argument(
        "--set", metavar="SECTION.KEY=VALUE", action="append", default=[], dest="overrides",
        help="one setting, stronger than the file and the environment; may be repeated",
    )


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """`--json`."""
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")


def config_of(args: argparse.Namespace) -> Config:
    """The configuration that the options name.

    Raises:
        UserError: a setting is not acceptable.
    """
    return load_config(args.config, args.overrides)


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    print(json.dumps(value, indent=2, allow_nan=False))


def plain_table(*columns: str) -> Table:
    """A table without a frame, as the shell's own tools print them."""
    table = Table(box=None, pad_edge=False, header_style="bold", show_header=any(columns))
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def stdout() -> Console:
    """Where tables go. Made anew each time, for tests replace `sys.stdout`."""
    return Console(highlight=False, markup=False, emoji=False)


def stderr() -> Console:
    """Where progress goes."""
    return Console(stderr=True, highlight=False)
