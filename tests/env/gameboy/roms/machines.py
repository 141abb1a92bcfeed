"""The two emulators behind one face, for scripts that compare them.

stable-retro allows one emulator per process, and other tests may hold one: use it in a child
process.
"""

from typing import Protocol

import numpy as np

RAM_START = 0xC000


class Machine(Protocol):
    def ram(self) -> bytes: ...
    def shades(self) -> np.ndarray: ...
    def step(self, keys: list[str]) -> None: ...


class Gambatte:
    BUTTONS = ("B", None, "SELECT", "START", "UP", "DOWN", "LEFT", "RIGHT", "A")

    def __init__(self, rom: str, ram_bytes: int) -> None:
        import stable_retro

        self._ram_bytes = ram_bytes
        self._emulator = stable_retro.RetroEmulator(rom)
        self._data = stable_retro.data.GameData()
        self._emulator.configure_data(self._data)
        self._emulator.step()

    def ram(self) -> bytes:
        return self._data.memory.blocks[RAM_START][: self._ram_bytes]

    def shades(self) -> np.ndarray:
        return four_shades(self._emulator.get_screen())

    def step(self, keys: list[str]) -> None:
        mask = np.array([button in keys for button in self.BUTTONS], np.uint8)
        self._emulator.set_button_mask(mask, 0)
        self._emulator.step()


class PyBoyMachine:
    def __init__(self, rom: str, ram_bytes: int) -> None:
        from pyboy import PyBoy

        self._ram_bytes = ram_bytes
        self._boy = PyBoy(rom, window="null", sound_emulated=False, cgb=False)
        self._held: set[str] = set()

    def ram(self) -> bytes:
        return bytes(self._boy.memory[RAM_START : RAM_START + self._ram_bytes])

    def shades(self) -> np.ndarray:
        return four_shades(self._boy.screen.ndarray)

    def step(self, keys: list[str]) -> None:
        for key in self._held - set(keys):
            self._boy.button_release(key.lower())
        for key in set(keys) - self._held:
            self._boy.button_press(key.lower())
        self._held = set(keys)
        self._boy.tick(1, True)


def four_shades(screen: np.ndarray) -> np.ndarray:
    """The emulators paint the same four greys with different numbers."""
    return np.digitize(screen[..., 0], (42, 127, 212)).astype(np.uint8)


MACHINES = {"gambatte": Gambatte, "pyboy": PyBoyMachine}
