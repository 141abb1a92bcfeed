"""`rtagent rom list|verify`."""

from __future__ import annotations

import argparse

from rtagent.cli.options import add_json_option, plain_table, print_json, stdout
from rtagent.env.rom import bundled_roms
from rtagent.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "action",
        choices=("list", "verify"),
        help="list: the cartridges; verify: the same, and fail if one is not what it should be",
    )
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Print the cartridges.

    Raises:
        UserError: `verify`, and a cartridge is missing or another one than its manifest says.
    """
    roms = bundled_roms()
    if args.json:
        print_json(
            [
                {
                    "title": rom.title,
                    "path": str(rom.path),
                    "licence": rom.licence,
                    "status": rom.status,
                }
                for rom in roms
            ]
        )
    else:
        table = plain_table("cartridge", "status", "licence", "path")
        for rom in roms:
            table.add_row(rom.title, rom.status, rom.licence, str(rom.path))
        stdout().print(table)
    wrong = [rom for rom in roms if rom.status != "ok"]
    if args.action == "verify" and wrong:
        first = wrong[0]
        raise UserError(
            f"{first.title}: {first.status}: {first.path}; restore the file from the repository "
            "or reinstall rtagent"
        )
    return 0
