"""A Game Boy by PyBoy: the second emulator, for comparison, or for several games in one process.

It shows the same four greys as the gambatte core. Its states are large: saving one takes about
20 ms; restoring one takes 6 ms, a third of a tick.
"""

from __future__ import annotations

import importlib
import io
import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rtagent.env.gameboy.machine import BUTTON_NAMES, Machine, Snapshot, check_buttons
from rtagent.errors import UserError

GREYS = np.array([[0, 0, 0], [80, 84, 80], [168, 168, 168], [248, 252, 248]], np.uint8)
"""The gambatte core's colours for the four greys, the darkest first."""

OLDEST_VERSION = b"\x02"
"""The first byte of a state is its format's version; older formats have no such byte."""

_SHADE_OF = np.digitize(np.arange(256), [42, 119, 204]).astype(np.uint8)
"""The shade, 0 to 3, of each level; PyBoy's are 0, 85, 153 and 255."""


class PyBoyMemory:
    """The machine's memory; every address can be read."""

    def __init__(self, memory: Any) -> None:
        self._memory = memory

    def u8(self, address: int) -> int:
        """The byte at `address`."""
        return int(self._memory[address])


class PyBoyMachine(Machine):
    """One running machine; a process can hold several.

    Args:
        image: the cartridge, with a correct header.

    Raises:
        UserError: PyBoy is not installed, or refuses the cartridge.
    """

    def __init__(self, image: bytes) -> None:
        super().__init__()
        pyboy = _pyboy()
        try:
            # With a stream, PyBoy looks for no file of the cartridge's RAM.
            self._boy: Any = pyboy.PyBoy(
                io.BytesIO(image), window="null", sound_emulated=False, cgb=False,
                log_level="CRITICAL",
            )
        except Exception as error:
            raise UserError(f"PyBoy refuses the cartridge: {error}") from None
        self.ram = PyBoyMemory(self._boy.memory)
        self._held: frozenset[str] = frozenset()
        self._version = self.snapshot().state[:1]

    def press(self, buttons: Iterable[str] = ()) -> None:
        wanted = frozenset(buttons)
        check_buttons(wanted)
        for name in self._held - wanted:
            self._boy.button_release(name.lower())
        for name in wanted - self._held:
            self._boy.button_press(name.lower())
        self._held = wanted

    def step(self) -> None:
        self._boy.tick(1, True)
        self._picture = None

    def _shown(self) -> NDArray[np.uint8]:
        return np.asarray(GREYS[_SHADE_OF[self._boy.screen.ndarray[..., 0]]])

    def snapshot(self) -> Snapshot:
        file = io.BytesIO()
        self._boy.save_state(file)
        return Snapshot(file.getvalue(), self.screen())

    def restore(self, snapshot: Snapshot) -> None:
        if not OLDEST_VERSION <= snapshot.state[:1] <= self._version:
            # PyBoy would read it as a format without a version, and hang.
            raise ValueError("this snapshot was not taken by PyBoy, or by a newer version of it")
        try:
            self._boy.load_state(io.BytesIO(snapshot.state))
        except Exception as error:
            raise ValueError(f"this snapshot was not taken from this cartridge: {error}") from None
        self._picture = snapshot.picture
        # The state holds the buttons of its own time.
        for name in BUTTON_NAMES:
            button = self._boy.button_press if name in self._held else self._boy.button_release
            button(name.lower())

    def close(self) -> None:
        self._boy.stop(save=False)


def _pyboy() -> Any:
    try:
        with warnings.catch_warnings():
            # It warns about the SDL that it would show windows with.
            warnings.simplefilter("ignore")
            return importlib.import_module("pyboy")
    except ImportError:
        raise UserError(
            "env.kwargs.backend = 'pyboy': PyBoy is not installed; pip install 'rtagent[pyboy]'"
        ) from None
