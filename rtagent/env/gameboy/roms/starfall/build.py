"""Build the Starfall cartridge from its sources with SDCC.

    python -m rtagent.env.gameboy.roms.starfall.build [--output PATH]
"""

from __future__ import annotations

import sys
from pathlib import Path

from rtagent.env.gameboy.roms.cartridge import build_cartridge, build_command, tiles_header

SOURCE = Path(__file__).resolve().parent
ROM = SOURCE / "starfall.gb"
TITLE = "STARFALL"
PARTS = ("main", "rules", "picture")


def build_rom() -> bytes:
    """The 32 KiB cartridge image.

    Raises:
        BuildError: SDCC is not installed or refuses the sources.
    """
    tiles = tiles_header((SOURCE / "tiles.txt").read_text())
    return build_cartridge(SOURCE, TITLE, PARTS, {"tiles.h": tiles})


if __name__ == "__main__":
    sys.exit(build_command(build_rom, ROM))
