"""A running Game Boy, whichever emulator it is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from rtagent.env.gameboy.gambatte_machine import GameBoy, Snapshot
from rtagent.env.gameboy.rom_file import padded
from rtagent.errors import UserError


class Memory(Protocol):
    """The machine's memory."""

    def u8(self, address: int) -> int:
        """The byte at `address`; IndexError where the emulator shows none."""
        ...


class Machine(Protocol):
    """What `GameBoy` does, and any other emulator has to."""

    @property
    def ram(self) -> Memory:
        """The machine's memory."""
        ...

    def press(self, buttons: Iterable[str] = ()) -> None:
        """Hold exactly these buttons from the next frame on."""
        ...

    def step(self) -> None:
        """Run one frame."""
        ...

    def screen(self) -> NDArray[np.uint8]:
        """The picture shown after the last frame: uint8 RGB (144, 160, 3)."""
        ...

    def snapshot(self) -> Snapshot:
        """The machine as it is now; held buttons are not part of it."""
        ...

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to a snapshot; ValueError if it is not of this cartridge and emulator."""
        ...

    def close(self) -> None:
        """Switch off; may be called twice."""
        ...


def switch_on(backend: str, image: bytes) -> Machine:
    """Switch a machine on.

    Args:
        backend: `gambatte`, or `pyboy`, which is slower, and of which a process can hold several.
        image: the cartridge.

    Raises:
        UserError: there is no such backend, or it is not installed.
        RuntimeError: gambatte, and this process runs one already.
    """
    if backend == "gambatte":
        return GameBoy(padded(image))
    if backend != "pyboy":
        raise UserError(f"env.kwargs.backend = {backend!r}: expected gambatte or pyboy")
    # Optional, and SDL's bindings come with it.
    from rtagent.env.gameboy.pyboy_machine import PyBoyMachine

    return PyBoyMachine(padded(image))
