"""Draws docs/images/duel.png and docs/images/starfall.png.

PYTHONPATH=. python tests/env/gameboy/roms/screenshots.py duel|starfall OUTPUT.png
"""

import sys

import numpy as np
from PIL import Image
from player import STAR0, STAR1, ram_of, shades, starfall, started, word

from rtagent.env.gameboy.machine import Machine

GAP = 8
"""Pixels of the Game Boy between two screens."""
GREYS = np.array([8, 88, 168, 248], np.uint8)
ENCOUNTER = 33


def tap(machine: Machine, *keys: str, wait: int = 12) -> None:
    for key in keys:
        machine.press([key])
        machine.step()
        machine.press()
        for _ in range(wait):
            machine.step()


def duel_screens() -> list[np.ndarray]:
    """The title, the choice of a move, and a blow."""
    machine = started("duel", "gambatte")
    tap(machine, *["RIGHT"] * (ENCOUNTER - 1))
    title = shades(machine)
    tap(machine, "START", wait=60)
    tap(machine, "A", "A", wait=120)
    tap(machine, "A", "DOWN")
    choice = shades(machine)
    tap(machine, "A", wait=10)
    return [title, choice, shades(machine)]


def starfall_screens() -> list[np.ndarray]:
    """The title, and a game with two stars in the air."""
    machine = started("starfall", "gambatte")
    keys = starfall(start_frame=90, follow_until=10_000)
    title = shades(machine)
    while not two_stars_well_apart(ram := ram_of(machine)):
        machine.press(keys(ram, 0))
        machine.step()
        if word(ram, 6) == 24:
            title = shades(machine)
    return [title, shades(machine)]


def two_stars_well_apart(ram: bytes) -> bool:
    upper, lower = sorted((ram[STAR0 + 1], ram[STAR1 + 1]))
    return upper > 20 and 80 < lower < 95


def main(game: str, output: str) -> None:
    screens, shade, scale = {
        "duel": (duel_screens, 1, 2), "starfall": (starfall_screens, 3, 3),
    }[game]
    first, *others = screens()
    gap = np.full((first.shape[0], GAP), shade, np.uint8)
    columns = [first, *(column for screen in others for column in (gap, screen))]
    picture = Image.fromarray(GREYS[np.hstack(columns)])
    size = (picture.width * scale, picture.height * scale)
    picture.resize(size, Image.Resampling.NEAREST).save(output, optimize=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
