"""A Game Boy: stable-retro's gambatte core, without stable-retro's environment.

`RetroEnv` copies and searches the whole RAM on every step and needs a folder with five files for
each game. The core needs neither: its RAM can be read in place, a quarter of a microsecond per
value, and its whole state saved or loaded in 3 microseconds.
"""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from stable_retro import RetroEmulator
from stable_retro.data import GameData

from rtagent.env.gameboy.machine import Machine, Snapshot, check_buttons

BUTTONS = ("B", None, "SELECT", "START", "UP", "DOWN", "LEFT", "RIGHT", "A")
"""The core's order of buttons; the second place is unused."""


class Ram:
    """The machine's memory, read in place.

    Readable are video RAM 0x8000-0x9FFF, cartridge RAM, work RAM 0xC000-0xDFFF, OAM 0xFE00-0xFE9F
    and high RAM 0xFF80-0xFFFF; other addresses raise IndexError.
    """

    def __init__(self, memory: Any) -> None:
        self._extract = memory.extract
        self._assign = memory.assign

    def u8(self, address: int) -> int:
        """The byte at `address`."""
        return cast("int", self._extract(address, "|u1"))

    def u16le(self, address: int) -> int:
        """The two bytes at `address`, low byte first."""
        return cast("int", self._extract(address, "<u2"))

    def set_u16le(self, address: int, value: int) -> None:
        """Write two bytes, low byte first."""
        self._assign(address, "<u2", value)

    def detach(self) -> None:
        """Refuse further access, for the memory is freed with the emulator."""
        self._extract = self._assign = _Off().access


class GameBoy(Machine):
    """One running machine; a process can hold one at a time.

    Args:
        image: the cartridge.

    Raises:
        RuntimeError: this process runs a Game Boy already.
        ValueError: the image is not a cartridge.
    """

    ram: Ram

    def __init__(self, image: bytes) -> None:
        super().__init__()
        # An emulator without references still counts until it is collected.
        gc.collect()
        self._emulator: Any = _start(image)
        self._data: Any = GameData()
        self._emulator.configure_data(self._data)
        self.ram = Ram(self._data.memory)
        self._masks: dict[tuple[str, ...], NDArray[np.uint8]] = {}
        self._headings: list[tuple[int, int, bytes]] | None = None

    def press(self, buttons: Iterable[str] = ()) -> None:
        names = tuple(buttons)
        mask = self._masks.get(names)
        if mask is None:
            check_buttons(names)
            mask = self._masks[names] = np.array([each in names for each in BUTTONS], np.uint8)
        self._emulator.set_button_mask(mask, 0)

    def step(self) -> None:
        self._emulator.step()
        self._picture = None

    def _shown(self) -> NDArray[np.uint8]:
        return cast("NDArray[np.uint8]", self._emulator.get_screen())

    def snapshot(self) -> Snapshot:
        return Snapshot(self._emulator.get_state(), self.screen())

    def restore(self, snapshot: Snapshot) -> None:
        if not self._complete(snapshot.state) or not self._emulator.set_state(snapshot.state):
            raise ValueError("this snapshot was not taken from this cartridge")
        self._picture = snapshot.picture

    def _complete(self, state: bytes) -> bool:
        """Whether a state has the fields that this machine saves, at the same places.

        The core reads a field of any length, and takes a missing field from uninitialised memory:
        such a state may run once, and end the process another time.
        """
        if self._headings is None:
            self._headings = list(_headings(self._emulator.get_state()))
        return len(state) == self._headings[-1][1] and all(
            state[start:stop] == heading for start, stop, heading in self._headings
        )

    def close(self) -> None:
        """Switch off, so that this process can start another machine; may be called twice."""
        self.ram.detach()
        self._emulator = self._data = _Off()
        self._picture = None


class _Off:
    """Takes the emulator's place: every call raises a RuntimeError."""

    def __getattr__(self, name: str) -> Any:
        def refuse(*arguments: Any) -> None:
            raise RuntimeError("this Game Boy is switched off")

        return refuse


def _headings(state: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Start, end and content of each field's heading, then of the empty end of the state.

    A state begins with a version, two bytes, and a picture; then come the fields, each after its
    name, which ends with a zero byte. Before picture and fields stands their length, in three
    bytes, the highest first. A heading is all that stands before a field's content.
    """
    start, at = 0, 2
    while True:
        stop = at + 3
        yield start, stop, state[start:stop]
        start = stop + int.from_bytes(state[at:stop], "big")
        if start >= len(state):
            break
        at = state.index(b"\0", start) + 1
    yield len(state), len(state), b""


def _start(image: bytes) -> Any:
    with tempfile.TemporaryDirectory(prefix="rtagent-") as folder:
        # The core is chosen by the file's ending, and the file is read once.
        path = Path(folder, "cartridge.gb")
        path.write_bytes(image)
        try:
            return RetroEmulator(str(path))
        except RuntimeError as error:
            if "multiple emulator instances" in str(error):
                raise RuntimeError(
                    "this process runs a Game Boy already; the gambatte core allows one: close it "
                    "first, or use another process"
                ) from None
            raise ValueError(f"not a Game Boy cartridge ({len(image)} bytes)") from None
