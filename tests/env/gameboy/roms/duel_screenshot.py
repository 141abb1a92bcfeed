"""Draws docs/images/duel.png: the title, the choice of a move, and a blow.

PYTHONPATH=. python tests/env/gameboy/roms/duel_screenshot.py ROM OUTPUT.png
"""

import sys

import numpy as np
from duel_player import RAM_BYTES
from machines import Gambatte
from PIL import Image

SCALE = 2
GAP = 8  # pixels of the Game Boy between two screens
GREYS = np.array([8, 88, 168, 248], np.uint8)
ENCOUNTER = 33


def tap(machine: Gambatte, *keys: str, wait: int = 12) -> None:
    for key in keys:
        machine.step([key])
        for _ in range(wait):
            machine.step([])


def main(rom: str, output: str) -> None:
    machine = Gambatte(rom, RAM_BYTES)
    tap(machine, "B", *["RIGHT"] * (ENCOUNTER - 1))  # B: while it boots
    title = machine.shades()
    tap(machine, "START", wait=60)
    tap(machine, "A", "A", wait=120)
    tap(machine, "A", "DOWN")
    choice = machine.shades()
    tap(machine, "A", wait=10)
    screens = [title, choice, machine.shades()]
    gap = np.full((title.shape[0], GAP), 1, np.uint8)
    columns = [column for screen in screens for column in (gap, screen)][1:]
    picture = Image.fromarray(GREYS[np.hstack(columns)])
    size = (picture.width * SCALE, picture.height * SCALE)
    picture.resize(size, Image.Resampling.NEAREST).save(output, optimize=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
