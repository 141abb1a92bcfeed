"""`rtagent rom list|verify|import|record|search`."""

from __future__ import annotations

import argparse
from pathlib import Path

from rtagent.cli import rom_record, rom_search
from rtagent.cli.daemon import add_state_dir_option
from rtagent.cli.options import add_json_option
from rtagent.cli.output import plain_table, print_json, report, stdout
from rtagent.config_sources import load_config
from rtagent.env.gameboy.rom import RomStatus, bundled_roms
from rtagent.env.gameboy.rom_library import FOLDER, import_rom, library_roms
from rtagent.errors import UserError

ACTIONS = {
    "list": "the cartridges, and whether they are what they should be",
    "verify": "list them, and fail if one is damaged",
    "import": "copy cartridges of your own into the state directory",
    "record": "play: save states in which episodes can begin, record demonstrations",
    "search": "where a game keeps a number, found from a few saved states",
}
MODULES = {"record": rom_record, "search": rom_search}
"""The modules of the actions that have one of their own."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, text in ACTIONS.items():
        action = actions.add_parser(name, help=text, description=text)
        if name in MODULES:
            MODULES[name].add_arguments(action)
            continue
        if name == "import":
            _add_import_arguments(action)
        add_state_dir_option(action)
        add_json_option(action)


def _add_import_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("paths", nargs="+", type=Path, metavar="PATH", help="a cartridge's file")
    add("--as", dest="name", metavar="NAME", help="its name, even if the cartridge is unknown")
    add("--replace", action="store_true", help="replace another cartridge of that name")


def run(args: argparse.Namespace) -> int:
    """Print the cartridges, import some, record play, or search a memory."""
    if args.action in MODULES:
        return int(MODULES[args.action].run(args))
    folder = (args.state_dir or load_config().state_dir) / FOLDER
    if args.action == "import":
        _import(args, folder)
        return 0
    bundled, library = bundled_roms(), library_roms(folder)
    found = [{"title": rom.title, "status": rom.status, "licence": rom.licence,
              "path": str(rom.path)} for rom in [*bundled, *library]]
    report(args, found, lambda roms: stdout().print(plain_table(
        "cartridge", "status", "licence", "path", rows=(rom.values() for rom in roms)
    )))
    if args.action == "verify":
        _verify(bundled, library)
    return 0


def _verify(bundled: list[RomStatus], library: list[RomStatus]) -> None:
    for rom in bundled:
        if rom.status != "ok":
            raise UserError(
                f"{rom.title}: {rom.status}: {rom.path}; restore the file from the repository "
                "or reinstall rtagent"
            )
    for rom in library:
        if rom.status == "wrong hash":
            raise UserError(f"{rom.title}: {rom.status}: {rom.path}; import it again")


def _import(args: argparse.Namespace, folder: Path) -> None:
    if args.name and len(args.paths) > 1:
        raise UserError("--as NAME goes with one PATH")
    done = []
    for path in args.paths:
        rom = import_rom(folder, path, args.name, replace=args.replace)
        done.append(rom)
        if not args.json:
            print(f"{rom.name}: {'verified' if rom.known else 'unverified'}: {rom.path}")
    if args.json:
        print_json([{"name": rom.name, "path": str(rom.path), "verified": rom.known,
                     "sha1": rom.sha1} for rom in done])
