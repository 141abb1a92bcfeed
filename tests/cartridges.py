"""Stand-ins for the cartridges that users bring: games of ours, as if they were somebody else's."""

from __future__ import annotations

from pathlib import Path

from rtagent.env.gameboy.rom import BUNDLED
from rtagent.env.gameboy.rom_library import KNOWN, import_rom
from rtagent.env.gameboy.roms.cartridge import with_header

ROM = BUNDLED / "starfall" / "starfall.gb"
STAND_IN = Path(__file__).parent / "env" / "gameboy" / "roms" / "standin"
"""A cartridge that has the variables of the paper's games at their addresses."""
BEGIN = "2 START\n5\n"
"""The keys that begin its battle and its round."""
REWARDS = """
[variables]
screen = { address = 0xC001 }
score = { address = 0xC002, type = "u2le" }
lives = { address = 0xC004 }
[reward]
caught = { increase = "score" }
lost = { decrease = "lives", weight = -1 }
[done]
over = { equals = "screen", value = 2 }
"""
"""What counts in Starfall, as a user would write it."""


def renamed(image: bytes, title: str) -> bytes:
    """The same cartridge under another title."""
    return with_header(bytearray(image), title)


def import_stand_ins(library: Path) -> None:
    """Import the stand-in as each of the paper's games."""
    image = (STAND_IN / "standin.gb").read_bytes()
    for known in KNOWN:
        path = library.with_name(f"{known.name}.gb")
        path.write_bytes(renamed(image, known.title))
        import_rom(library, path, known.name)
