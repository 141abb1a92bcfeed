"""Draws docs/images/starfall.png: the title and a game with two stars in the air.

python tests/env/gameboy/roms/starfall_screenshot.py ROM OUTPUT.png
"""

import sys

import numpy as np
from machines import Gambatte
from PIL import Image
from starfall_player import RAM_BYTES, STAR0, STAR1, script

SCALE = 3
GAP = 8  # pixels of the Game Boy between the two screens
GREYS = np.array([8, 88, 168, 248], np.uint8)


def two_stars_well_apart(ram: bytes) -> bool:
    upper, lower = sorted((ram[STAR0 + 1], ram[STAR1 + 1]))
    return upper > 20 and 80 < lower < 95


def main(rom: str, output: str) -> None:
    machine = Gambatte(rom, RAM_BYTES)
    keys = script(start_frame=90, follow_until=10_000)
    title = machine.shades()
    while not two_stars_well_apart(machine.ram()):
        ram = machine.ram()
        machine.step(keys(ram))
        if int.from_bytes(ram[6:8], "little") == 24:
            title = machine.shades()
    game = machine.shades()
    gap = np.full((title.shape[0], GAP), 3, np.uint8)
    picture = Image.fromarray(GREYS[np.hstack([title, gap, game])])
    size = (picture.width * SCALE, picture.height * SCALE)
    picture.resize(size, Image.Resampling.NEAREST).save(output, optimize=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
