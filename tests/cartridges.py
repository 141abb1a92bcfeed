"""Stand-ins for the cartridges that users bring: games of ours, as if they were somebody else's."""

from __future__ import annotations

from rtagent.env.gameboy.rom import BUNDLED
from rtagent.env.gameboy.roms.cartridge import with_header

ROM = BUNDLED / "starfall" / "starfall.gb"
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
