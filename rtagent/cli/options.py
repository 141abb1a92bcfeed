"""Options that several commands share, and their bounds."""

from __future__ import annotations

import argparse
import errno
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from rtagent.config import Config
from rtagent.config_sources import load_config, quoted
from rtagent.errors import UserError

LONGEST_S = 3600.0
PICTURES = (".png", ".svg", ".pdf")


def add_config_options(parser: argparse.ArgumentParser, default: str = "the built-in game") -> None:
    """`--config FILE`, whose default is told in words, and `--set SECTION.KEY=VALUE`."""
    add = parser.add_argument
    add("--config", type=Path, metavar="FILE", help=f"a TOML file; default: {default}")
    add("--set", metavar="SECTION.KEY=VALUE", action="append", default=[], dest="overrides",
        help="one setting, stronger than the file and the environment; may be repeated")


def option(name: str) -> str:
    """An attribute's option on the command line: `--update-ms` for `update_ms`."""
    return f"--{name.replace('_', '-')}"


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
        raise UserError(f"--seconds {seconds:.12g}: must be above 0, at most {longest:.12g}")


def make_empty(option: str, folder: Path) -> None:
    """Make the folder of the results before the work, so that an error comes in time.

    Raises:
        UserError: it cannot be made, or holds something.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        taken = any(folder.iterdir())
    except OSError as error:
        raise UserError(f"{option} {folder}: {error.strerror}") from None
    if taken:
        raise UserError(f"{option} {folder}: the folder is not empty; name a new one")


def add_picture_option(parser: argparse.ArgumentParser, meaning: str) -> None:
    """`--picture FILE`."""
    parser.add_argument(
        "--picture", metavar="FILE", type=Path, help=f"{meaning}, .png, .svg or .pdf"
    )


def check_written(option: str, path: Path | None, endings: Sequence[str] = PICTURES) -> None:
    """Refuse the file of an option that could not be written, before what it shows is measured.

    Raises:
        UserError: its name has another ending, or it has no folder to be written to.
    """
    if path is None:
        return
    if path.suffix not in endings:
        raise UserError(f"{option} {path}: the name must end in {', '.join(endings)}")
    if why := why_unwritable(path):
        raise UserError(f"{option} {path}: cannot be written: {why}")


def why_unwritable(path: Path) -> str | None:
    """Why a file cannot be written; None if it can. Nothing is written to find out."""
    # Not methods of the path: these raise where a folder may not be looked into.
    folder = path.parent
    if os.path.isdir(path):
        return os.strerror(errno.EISDIR)
    if not os.path.isdir(folder):
        return os.strerror(errno.ENOTDIR if os.path.exists(folder) else errno.ENOENT)
    may = os.access(path if os.path.exists(path) else folder, os.W_OK)
    return None if may else os.strerror(errno.EACCES)


def check_between(option: str, value: float, least: float, most: float, unit: str = "") -> None:
    """Refuse the value of an option outside its bounds.

    Raises:
        UserError: it is outside, or NaN.
    """
    if not least <= value <= most:
        raise UserError(f"--{option} {value:.12g}: must be {least:g} to {most:.12g}{unit}")


def config_of(args: argparse.Namespace, given: Iterable[str] = ()) -> Config:
    """The configuration that the options name.

    Args:
        args: with those of `add_config_options`, and perhaps `state_dir`, the strongest source.
        given: what other options say, as `SECTION.KEY=VALUE`; stronger than `--set`.

    Raises:
        UserError: a setting is not acceptable.
    """
    state_dir = getattr(args, "state_dir", None)
    # Quoted, so that it is a path even where it reads as a number or a date.
    own = [] if state_dir is None else [f"run.state_dir={quoted(str(state_dir))}"]
    return load_config(args.config, [*args.overrides, *given, *own])
