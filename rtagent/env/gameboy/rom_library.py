"""The cartridges that a user has imported: files in the folder `roms` of the state directory.

A file is called NAME.SHA1.gb, so the hash appears and goes with the file. The hashes of the known
games are public; the games themselves are not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from rtagent.env.gameboy.rom import RomStatus, Status
from rtagent.env.gameboy.rom_file import RomFile, read_rom
from rtagent.errors import UserError
from rtagent.files.atomic_write import atomic_write

FOLDER = "roms"
YOURS = "yours"
"""Terms of a cartridge that the user brought."""

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
_FILE = re.compile(rf"({_NAME.pattern})\.([0-9a-f]{{40}})\.gb")


@dataclass(frozen=True)
class KnownRom:
    """A game with built-in rewards: its name, its header's title, its revisions' hashes."""

    name: str
    title: str
    sha1: tuple[str, ...]


KNOWN = (
    KnownRom("pokemon-red", "POKEMON RED", ("ea9bcae617fdf159b045185467ae58b2e4a48b9a",)),
    KnownRom("pokemon-blue", "POKEMON BLUE", ("d7037c83e1ae5b39bde3c30787637ba1d4c48ce2",)),
    KnownRom("pokemon-yellow", "POKEMON YELLOW", ("cc7d03262ebfaf2f06772c1a480c7d9d5f4a38e1",)),
    KnownRom(
        "tetris", "TETRIS",
        ("74591cc9501af93873f9a5d3eb12da12c0723bbc", "3f2a6407c9900ad5817ee1cfb3609c5ee17400fc"),
    ),
)
"""English Pokemon in its first revision; Tetris for the world, revisions 1.1 and 1.0."""


@dataclass(frozen=True)
class LibraryRom:
    """An imported cartridge: its name, its file, and the hash that its image must have."""

    name: str
    path: Path
    sha1: str

    @property
    def known(self) -> bool:
        """Whether it is a known revision of the game of this name."""
        return any(rom.name == self.name and self.sha1 in rom.sha1 for rom in KNOWN)


def import_rom(
    folder: Path, path: Path, name: str | None = None, *, replace: bool = False
) -> LibraryRom:
    """Verify a cartridge and copy it into the library, whole or not at all, mode 0600.

    Args:
        folder: the library; made if absent.
        path: the cartridge.
        name: its name in the library, even if its hash is unknown. If None, the known game's name.
        replace: whether to remove another cartridge of this name.

    Raises:
        UserError: the file is no cartridge; its game is unknown and no name is given; another
            cartridge has the name; or the library cannot be written.
    """
    rom = read_rom(path)
    entry_name = _known_name(path, rom) if name is None else _checked_name(path, rom, name)
    others = [each for each in _entries(folder) if each.name == entry_name]
    target = folder / f"{entry_name}.{rom.sha1}.gb"
    entry = LibraryRom(entry_name, target, rom.sha1)
    if entry in others and _whole(entry):
        return entry
    others = [each for each in others if each != entry]
    if others and not replace:
        raise UserError(
            f"{path}: there is another cartridge called {entry_name}: {others[0].path}; --replace "
            "puts this one in its place"
        )
    try:
        # The state directory: `parents` alone would let a group write there, if the umask does.
        folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.mkdir(exist_ok=True, mode=0o700)
        with atomic_write(target, ".import-") as write:
            write(rom.image)
        for each in others:
            each.path.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"cannot import {path} into {folder}: {error.strerror}") from None
    return entry


def find_rom(folder: Path, name: str) -> LibraryRom:
    """The imported cartridge of this name, not verified; a UserError if there is none or several.
    """
    found = [each for each in _entries(folder) if each.name == name]
    if not found:
        raise UserError(
            f"the ROM {name} is not in {folder}; bring your own with: rtagent rom import PATH"
        )
    if len(found) > 1:
        raise UserError(
            f"there are {len(found)} ROMs called {name} in {folder}; remove all but one"
        )
    return found[0]


def library_roms(folder: Path) -> list[RomStatus]:
    """The known games, imported or missing, then the other cartridges, each verified."""
    entries = _entries(folder)
    imported = {each.name for each in entries}
    missing = [
        RomStatus(rom.name, folder, YOURS, "missing") for rom in KNOWN if rom.name not in imported
    ]
    found = [RomStatus(each.name, each.path, YOURS, _status(each)) for each in entries]
    order = {rom.name: place for place, rom in enumerate(KNOWN)}
    return sorted(
        [*found, *missing], key=lambda each: (order.get(each.title, len(order)), each.title)
    )


def _status(entry: LibraryRom) -> Status:
    if not _whole(entry):
        return "wrong hash"
    return "ok" if entry.known else "unverified"


def _whole(entry: LibraryRom) -> bool:
    """Whether the file is a cartridge with the hash in its name."""
    try:
        return read_rom(entry.path).sha1 == entry.sha1
    except UserError:
        return False


def _entries(folder: Path) -> list[LibraryRom]:
    try:
        paths = sorted(folder.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UserError(f"cannot read {folder}: {error.strerror}") from None
    matches = [(path, _FILE.fullmatch(path.name)) for path in paths]
    return [LibraryRom(match[1], path, match[2]) for path, match in matches if match]


def _known_name(path: Path, rom: RomFile) -> str:
    for known in KNOWN:
        if rom.sha1 in known.sha1:
            return known.name
    same = next((known.name for known in KNOWN if known.title == rom.title), None)
    if same is not None:
        raise UserError(
            f"{path} is called {rom.title!r}, but its SHA-1 {rom.sha1} is not a known one: another "
            f"revision, or a changed one; --as {same} imports it unverified"
        )
    raise UserError(
        f"{path} is called {rom.title!r}, SHA-1 {rom.sha1}, which is no known game; --as NAME "
        "imports it unverified"
    )


def _checked_name(path: Path, rom: RomFile, name: str) -> str:
    if not _NAME.fullmatch(name):
        raise UserError(f"--as {name}: expected lower-case letters, digits and hyphens, at most 40")
    for known in KNOWN:
        if known.name == name and known.title != rom.title:
            raise UserError(f"{path} is called {rom.title!r}; {name} is called {known.title!r}")
    return name
