"""`rtagent rom search`: where a game keeps a number, found from a few saved states."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rtagent.cli.daemon import add_state_dir_option
from rtagent.cli.options import add_json_option
from rtagent.cli.output import plain_table, progress_bar, report, stdout
from rtagent.config_sources import load_config
from rtagent.env.gameboy.rom_library import FOLDER, find_rom
from rtagent.errors import UserError

MOST = 40
CARTRIDGES = (".gb", ".gbc")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("game", metavar="NAME|PATH", help="an imported cartridge, or its file")
    add("looks", nargs="+", metavar="STATE[=VALUE]|RELATION",
        help="saved states in their order, each with the number that the screen showed if it is "
        "known, and between two of them how it changed: changed, unchanged, increased, decreased. "
        "For example: start.state=0 increased later.state=120 unchanged last.state")
    add("--type", metavar="TYPE", action="append", dest="types",
        help="a type of a reward file, such as u1 or bcd3le; may be repeated; default: all")
    add("--backend", choices=("gambatte", "pyboy"), default="gambatte",
        help="emulator (default gambatte)")
    add("--most", metavar="N", type=int, default=MOST, help=f"places shown (default {MOST})")
    add_state_dir_option(parser)
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Print the places that agree with everything that is known."""
    # The emulator is for this action alone.
    from rtagent.env.gameboy import ram_search
    from rtagent.env.gameboy.game import read_state
    from rtagent.env.gameboy.rewards import TYPES

    types = args.types or list(TYPES)
    for each in types:
        if each not in TYPES:
            raise UserError(f"--type {each}: there are {', '.join(TYPES)}")
    if args.most < 1:
        raise UserError(f"--most {args.most}: must be 1 or more")
    known = _parse_looks(args.looks, tuple(ram_search.RELATIONS))
    folder = (args.state_dir or load_config().state_dir) / FOLDER
    rom = cartridge_file(args.game) or find_rom(folder, args.game).path
    memories = _memories(rom, args.backend, {str(path): read_state(path) for path, _, _ in known})
    looks = [ram_search.Look(memories[str(path)], value, how) for path, value, how in known]
    found = ram_search.search(looks, types)
    places = [
        {"address": f"{place.address:#06x}", "type": place.type, "values": list(place.values)}
        for place in found[: args.most]
    ]
    report(args, {"found": len(found), "places": places}, lambda _: _print(len(found), places))
    return 0


def _parse_looks(
    words: Sequence[str], relations: Sequence[str]
) -> list[tuple[Path, int | None, str | None]]:
    """Saved states with what is known of each: file, value, relation to the state before.

    Raises:
        UserError: a relation does not stand between two states, or a value is no number.
    """
    looks: list[tuple[Path, int | None, str | None]] = []
    relation: str | None = None
    for word in words:
        if word in relations:
            if relation is not None or not looks:
                raise UserError(f"{word}: a relation stands between two states")
            relation = word
            continue
        name, equals, text = word.partition("=")
        if equals and not (text.isascii() and text.isdigit()):
            raise UserError(f"{word}: expected STATE=VALUE with a whole number, 0 or more")
        looks.append((Path(name).expanduser(), int(text) if equals else None, relation))
        relation = None
    if relation is not None:
        raise UserError(f"{relation}: a relation stands between two states")
    if all(value is None and relation is None for _, value, relation in looks):
        raise UserError("nothing is known of any state: give STATE=VALUE, or a relation")
    return looks


def cartridge_file(game: str) -> Path | None:
    """The file that the user means; None if it is the name of an environment or cartridge."""
    path = Path(game).expanduser()
    return path if path.suffix in CARTRIDGES or path.is_file() else None


def _memories(rom: Path, backend: str, states: dict[str, bytes]) -> dict[str, Any]:
    """The game's memory in each saved state."""
    from rtagent.env.gameboy.emulators import switch_on
    from rtagent.env.gameboy.machine import Snapshot
    from rtagent.env.gameboy.ram_search import memory_of
    from rtagent.env.gameboy.rom_file import read_rom
    from rtagent.env.gameboy.state_trial import check_states

    machine = switch_on(backend, read_rom(rom).image)
    found = {}
    try:
        # A machine that has just been switched on takes no state.
        machine.step()
        check_states(machine, states)
        with progress_bar() as bar:
            for name, state in bar.track(states.items(), description="reading states"):
                try:
                    machine.restore(Snapshot(state, machine.screen()))
                except ValueError:
                    raise UserError(f"{name} is no state of this cartridge on {backend}") from None
                found[name] = memory_of(machine.ram.u8)
        return found
    finally:
        machine.close()


def _print(found: int, places: list[dict[str, Any]]) -> None:
    console = stdout()
    if not found:
        console.print("no place agrees; was each state saved while the number was on the screen?")
        return
    rows = ((place["address"], place["type"], " ".join(map(str, place["values"])))
            for place in places)
    console.print(plain_table("address", "type", "values", rows=rows))
    more = found - len(places)
    if more:
        console.print(f"and {more} more; another state, or --type, leaves fewer")
    variable = 'address = {address}, type = "{type}"'.format(**places[0])
    console.print(f"\nin a reward file:  number = {{ {variable} }}", soft_wrap=True)
