"""Plays a bundled game by script on one emulator and records what happened.

Gambatte is run as a child process: stable-retro allows one emulator per process, and other tests
may hold one.

    python player.py duel|starfall gambatte|pyboy RECORDING.npz OPTIONS

OPTIONS are those of `record` and of the game's script, as JSON.
"""

import json
import sys
from collections.abc import Callable

import numpy as np

from benchmarks.worlds.duel_players import View, competent, masher, random_player
from rtagent.env.gameboy.emulators import switch_on
from rtagent.env.gameboy.machine import Machine
from rtagent.env.gameboy.rom import BUNDLED, read_manifest

Keys = Callable[[bytes, int], list[str]]

RAM_START = 0xC000
RAM_BYTES = 0x40

CHOOSE_FRAMES = 4
RANDOM_SEED = 4
RANDOM_UNTIL = 900

SCREEN, PADDLE_X, STAR0, STAR1 = 0x01, 0x08, 0x0A, 0x0C
TITLE, PLAYING = range(2)
PADDLE_AHEAD_OF_STAR = 8
"""Half the difference of their widths."""


def word(ram: bytes, offset: int) -> int:
    return ram[offset] | ram[offset + 1] << 8


def duel(encounter: int = 1, successes: int = 0) -> Keys:
    """Choose an encounter, play well for some successes, then at random, then badly."""
    actions = [list(buttons) for buttons in read_manifest(BUNDLED / "duel").actions]
    player = random_player(RANDOM_SEED, hold=3)

    def keys(ram: bytes, index: int) -> list[str]:
        chosen, phase = divmod(index, CHOOSE_FRAMES)
        if chosen < encounter:
            last = chosen == encounter - 1
            return ([["START"] if last else ["RIGHT"]] + [[]] * (CHOOSE_FRAMES - 1))[phase]
        view = View(lambda address: ram[address - RAM_START])
        done = word(ram, 6) + word(ram, 0xA)
        if done < successes:
            return actions[competent(view, index)]
        return actions[(player if index < RANDOM_UNTIL else masher)(view, index)]

    return keys


def starfall(start_frame: int = 60, follow_until: int = 0) -> Keys:
    """START on the given frame, follow the stars up to a score, then stand still."""

    def keys(ram: bytes, index: int) -> list[str]:
        score, frame = word(ram, 2), word(ram, 6)
        if ram[SCREEN] == PLAYING:
            return follow_lowest_star(ram) if score < follow_until else []
        if ram[SCREEN] == TITLE:
            return ["START"] if frame == start_frame else []
        return ["START"] if frame % 64 == 0 else []

    return keys


def follow_lowest_star(ram: bytes) -> list[str]:
    stars = [(ram[star + 1], ram[star]) for star in (STAR0, STAR1) if ram[star + 1]]
    if not stars:
        return []
    distance = max(stars)[1] - PADDLE_AHEAD_OF_STAR - ram[PADDLE_X]
    if abs(distance) < 4:
        return []
    return ["RIGHT"] if distance > 0 else ["LEFT"]


GAMES: dict[str, tuple[Callable[..., Keys], int, int]] = {
    "duel": (duel, 2, 20), "starfall": (starfall, 6, 8),
}
"""Script, offset of the game's frame counter, and its value when the recording begins."""


def started(game: str, emulator: str) -> Machine:
    """A machine at the frame at which the recording begins."""
    _, counter, first = GAMES[game]
    machine = switch_on(emulator, read_manifest(BUNDLED / game).read())
    while ram_of(machine)[0] != ord("Z") or word(ram_of(machine), counter) < first:
        machine.step()
    return machine


def ram_of(machine: Machine) -> bytes:
    return bytes(machine.ram.u8(RAM_START + each) for each in range(RAM_BYTES))


def shades(machine: Machine) -> np.ndarray:
    """The picture, 0 black to 3 white."""
    return np.digitize(machine.screen()[..., 0], (42, 127, 212)).astype(np.uint8)


def record(
    game: str, emulator: str, output: str, frames: int = 600, picture_every: int = 0, **script: int
) -> None:
    """Play for some frames, and write memory and picture of each."""
    keys, machine = GAMES[game][0](**script), started(game, emulator)
    rams, pictures = [], []
    for index in range(frames):
        ram = ram_of(machine)
        rams.append(np.frombuffer(ram, np.uint8))
        if picture_every and index % picture_every == 0:
            pictures.append(shades(machine))
        machine.press(keys(ram, index))
        machine.step()
    np.savez(output, ram=np.stack(rams), pictures=np.array(pictures, np.uint8))


if __name__ == "__main__":
    record(*sys.argv[1:4], **json.loads(sys.argv[4]))
