"""Plays Duel by script on one emulator and records what happened.

A script of its own, run as a child process: stable-retro allows one emulator
per process, and other tests may hold one.

    python duel_player.py gambatte|pyboy ROM RECORDING.npz [options]
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
from machines import MACHINES, RAM_START, Machine

from benchmarks.duel_players import View, competent, masher, random_player
from rtagent.env.gameboy.rom import BUNDLED, read_manifest

RAM_BYTES = 0x40
FIRST_FRAME = 20
CHOOSE_FRAMES = 4
RANDOM_SEED = 4
RANDOM_UNTIL = 900


def word(ram: bytes, offset: int) -> int:
    return ram[offset] | ram[offset + 1] << 8


def script(encounter: int, successes: int) -> Callable[[bytes, int], list[str]]:
    """Choose an encounter, play well for so many successes, then at random, then badly."""
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


def record(
    machine: Machine, keys: Callable[[bytes, int], list[str]], frames: int, picture_every: int
) -> dict[str, np.ndarray]:
    """Play for some frames from FIRST_FRAME of the game's own frame counter on."""
    while machine.ram()[0] != ord("Z") or word(machine.ram(), 2) < FIRST_FRAME:
        machine.step([])
    rams, pictures = [], []
    for index in range(frames):
        ram = machine.ram()
        rams.append(np.frombuffer(ram, np.uint8))
        if picture_every and index % picture_every == 0:
            pictures.append(machine.shades())
        machine.step(keys(ram, index))
    return {"ram": np.stack(rams), "pictures": np.array(pictures, np.uint8)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("emulator", choices=MACHINES)
    parser.add_argument("rom")
    parser.add_argument("recording", type=Path)
    parser.add_argument("--encounter", type=int, default=1)
    parser.add_argument("--successes", type=int, default=0)
    parser.add_argument("--frames", type=int, default=600)
    parser.add_argument("--picture-every", type=int, default=0)
    options = parser.parse_args()
    machine: Machine = MACHINES[options.emulator](options.rom, RAM_BYTES)
    keys = script(options.encounter, options.successes)
    recording = record(machine, keys, options.frames, options.picture_every)
    np.savez(options.recording, **recording)


if __name__ == "__main__":
    main()
