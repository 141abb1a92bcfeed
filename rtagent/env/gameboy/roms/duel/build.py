"""Build the Duel cartridge from its sources with SDCC.

    python -m rtagent.env.gameboy.roms.duel.build [--output PATH]
"""

from __future__ import annotations

import sys
from pathlib import Path

from rtagent.env.gameboy.roms.cartridge import (
    build_cartridge,
    build_command,
    strips_of,
    tiles_header,
    tiles_of,
)

SOURCE = Path(__file__).resolve().parent
ROM = SOURCE / "duel.gb"
TITLE = "DUEL"
PARTS = ("main", "battle", "opponents", "menu", "picture")


def build_rom() -> bytes:
    """The 32 KiB cartridge image.

    Raises:
        BuildError: SDCC is not installed or refuses the sources.
    """
    headers = {
        "tiles.h": tiles_header((SOURCE / "tiles.txt").read_text()),
        "creatures.h": creatures_header((SOURCE / "creatures.txt").read_text()),
    }
    return build_cartridge(SOURCE, TITLE, PARTS, headers)


def creatures_header(pictures: str) -> str:
    """The drawn left halves of the creatures, 8 by 16 pixels, as 16 tiles each, in a C header."""
    creatures = [tiles_of(enlarged(rows)) for rows in strips_of(pictures).values()]
    values = ",\n".join("{" + ",".join(map(str, tiles)) + "}" for tiles in creatures)
    return f"static const uint8_t creature_data[{len(creatures)}][256] = {{{values}}};\n"


def enlarged(rows: list[str]) -> list[str]:
    """Mirror half a creature to a whole one, and double each pixel's width and height."""
    wide = ["".join(2 * pixel for pixel in row + row[::-1]) for row in rows]
    return [row for row in wide for _ in range(2)]


if __name__ == "__main__":
    sys.exit(build_command(build_rom, ROM))
