"""Plays Starfall by script on one emulator and records what happened.

A script of its own, run as a child process: stable-retro allows one emulator
per process, and other tests may hold one.

    python starfall_player.py gambatte|pyboy ROM RECORDING.npz [options]
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
from machines import MACHINES, Machine

RAM_BYTES = 24
SCREEN, LIVES, PADDLE_X, STAR0, STAR1 = 0x01, 0x04, 0x08, 0x0A, 0x0C
TITLE, PLAYING, GAME_OVER = range(3)
FIRST_FRAME = 8
PADDLE_AHEAD_OF_STAR = 8  # half the difference of their widths


def word(ram: bytes, offset: int) -> int:
    return ram[offset] | ram[offset + 1] << 8


def score(ram: bytes) -> int:
    return word(ram, 2)


def frame(ram: bytes) -> int:
    return word(ram, 6)


def follow_lowest_star(ram: bytes) -> list[str]:
    stars = [(ram[star + 1], ram[star]) for star in (STAR0, STAR1) if ram[star + 1]]
    if not stars:
        return []
    distance = max(stars)[1] - PADDLE_AHEAD_OF_STAR - ram[PADDLE_X]
    if abs(distance) < 4:
        return []
    return ["RIGHT"] if distance > 0 else ["LEFT"]


def script(start_frame: int, follow_until: int) -> Callable[[bytes], list[str]]:
    """START on the given frame, follow the stars up to a score, then stand still."""

    def keys(ram: bytes) -> list[str]:
        if ram[SCREEN] == PLAYING:
            return follow_lowest_star(ram) if score(ram) < follow_until else []
        if ram[SCREEN] == TITLE:
            return ["START"] if frame(ram) == start_frame else []
        return ["START"] if frame(ram) % 64 == 0 else []

    return keys


def record(
    machine: Machine, keys: Callable[[bytes], list[str]], frames: int, picture_every: int
) -> dict[str, np.ndarray]:
    """Play for some frames from FIRST_FRAME of the game's own frame counter on."""
    while machine.ram()[0] != ord("Z") or frame(machine.ram()) < FIRST_FRAME:
        machine.step([])
    rams, pictures = [], []
    for index in range(frames):
        ram = machine.ram()
        rams.append(np.frombuffer(ram, np.uint8))
        if picture_every and index % picture_every == 0:
            pictures.append(machine.shades())
        machine.step(keys(ram))
    return {"ram": np.stack(rams), "pictures": np.array(pictures, np.uint8)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("emulator", choices=MACHINES)
    parser.add_argument("rom")
    parser.add_argument("recording", type=Path)
    parser.add_argument("--start-frame", type=int, default=60)
    parser.add_argument("--follow-until", type=int, default=0)
    parser.add_argument("--frames", type=int, default=600)
    parser.add_argument("--picture-every", type=int, default=0)
    options = parser.parse_args()
    machine: Machine = MACHINES[options.emulator](options.rom, RAM_BYTES)
    keys = script(options.start_frame, options.follow_until)
    recording = record(machine, keys, options.frames, options.picture_every)
    np.savez(options.recording, **recording)


if __name__ == "__main__":
    main()
