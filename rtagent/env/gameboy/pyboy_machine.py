"""A Game Boy by PyBoy: the second emulator, for comparison, or for several in one process.

It shows the same four greys as the gambatte core. Its states are large: to save one takes some
20 ms, to restore one 6, which is a third of a tick.
"""

from __future__ import annotations

import importlib
import io
import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rtagent.env.gameboy.gambatte_machine import BUTTON_NAMES, HEIGHT, WIDTH, Snapshot
from rtagent.errors import UserError

GREYS = np.array([[0, 0, 0], [80, 84, 80], [168, 168, 168], [248, 252, 248]], np.uint8)
"""The gambatte core's colours for the four greys, the darkest first."""

OLDEST_VERSION = b"\x02"
"""Of a state's format, its first byte; before, there was none."""

_DARKER_THAN = np.array([42, 119, 204], np.uint8)
"""Bounds between PyBoy's 0, 85, 153 and 255."""

_SHADE_OF = np.digitize(np.arange(256), _DARKER_THAN).astype(np.uint8)


class PyBoyMemory:
    """The machine's memory; every address can be read."""

    def __init__(self, memory: Any) -> None:
        self._memory = memory

    def u8(self, address: int) -> int:
        """The byte at `address`."""
        return int(self._memory[address])


class PyBoyMachine:
    """One running machine; a process can hold several.

    Attributes:
        ram: the machine's memory.
    """

    def __init__(self, image: bytes) -> None:
        """Switch the machine on, with no button held and no frame run.

        Args:
            image: the cartridge, with a header that is right.

        Raises:
            UserError: PyBoy is not installed, or refuses the cartridge.
        """
        pyboy = _pyboy()
        try:
            # Cartridge RAM given as a stream: no file is looked for.
            self._boy: Any = pyboy.PyBoy(
                io.BytesIO(image), window="null", sound_emulated=False, cgb=False,
                log_level="CRITICAL",
            )
        except Exception as error:
            raise UserError(f"PyBoy refuses the cartridge: {error}") from None
        self.ram = PyBoyMemory(self._boy.memory)
        self._held: frozenset[str] = frozenset()
        self._picture: NDArray[np.uint8] | None = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
        self._version = self.snapshot().state[:1]

    def press(self, buttons: Iterable[str] = ()) -> None:
        """Hold exactly these buttons from the next frame on.

        Args:
            buttons: names out of `BUTTON_NAMES`.

        Raises:
            ValueError: a name is unknown.
        """
        wanted = frozenset(buttons)
        for name in wanted.difference(BUTTON_NAMES):
            raise ValueError(f"unknown button {name!r}; a Game Boy has {', '.join(BUTTON_NAMES)}")
        for name in self._held - wanted:
            self._boy.button_release(name.lower())
        for name in wanted - self._held:
            self._boy.button_press(name.lower())
        self._held = wanted

    def step(self) -> None:
        """Run one frame."""
        self._boy.tick(1, True)
        self._picture = None

    def screen(self) -> NDArray[np.uint8]:
        """The picture shown after the last frame: uint8 RGB (144, 160, 3)."""
        if self._picture is None:
            self._picture = GREYS[_SHADE_OF[self._boy.screen.ndarray[..., 0]]]
        return self._picture

    def snapshot(self) -> Snapshot:
        """The machine as it is now; held buttons are not part of it."""
        file = io.BytesIO()
        self._boy.save_state(file)
        return Snapshot(file.getvalue(), self.screen())

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to a snapshot.

        Raises:
            ValueError: the snapshot was not taken from this cartridge, or not by PyBoy.
        """
        version = snapshot.state[:1]
        if not OLDEST_VERSION <= version <= self._version:
            # PyBoy takes it for one without a version, and hangs.
            raise ValueError("this snapshot was not taken by PyBoy, or by a newer version of it")
        try:
            self._boy.load_state(io.BytesIO(snapshot.state))
        except Exception as error:
            raise ValueError(f"this snapshot was not taken from this cartridge: {error}") from None
        self._picture = snapshot.picture
        # The state brings its own buttons along.
        for name in BUTTON_NAMES:
            if name in self._held:
                self._boy.button_press(name.lower())
            else:
                self._boy.button_release(name.lower())

    def close(self) -> None:
        """Switch off; may be called twice."""
        self._boy.stop(save=False)


def _pyboy() -> Any:
    try:
        with warnings.catch_warnings():
            # It tells which SDL it would show windows with.
            warnings.simplefilter("ignore")
            return importlib.import_module("pyboy")
    except ImportError:
        raise UserError(
            "env.kwargs.backend = 'pyboy': PyBoy is not installed; pip install 'rtagent[pyboy]'"
        ) from None
