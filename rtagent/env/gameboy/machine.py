"""A running Game Boy of any emulator."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

HEIGHT, WIDTH = 144, 160
BUTTON_NAMES = ("B", "SELECT", "START", "UP", "DOWN", "LEFT", "RIGHT", "A")


@dataclass(frozen=True)
class Snapshot:
    """The whole machine at one moment: the emulator's state, and the picture shown then."""

    state: bytes
    picture: NDArray[np.uint8]


class Memory(Protocol):
    """The machine's memory."""

    def u8(self, address: int) -> int:
        """The byte at `address`; IndexError where the emulator shows none."""


class Machine(ABC):
    """A machine that is switched on, with no button held and no frame run.

    Attributes:
        ram: its memory.
    """

    ram: Memory

    def __init__(self) -> None:
        self._picture: NDArray[np.uint8] | None = np.zeros((HEIGHT, WIDTH, 3), np.uint8)

    @abstractmethod
    def press(self, buttons: Iterable[str] = ()) -> None:
        """Hold exactly these buttons, out of `BUTTON_NAMES`, from the next frame on.

        Raises:
            ValueError: a name is unknown.
        """

    @abstractmethod
    def step(self) -> None:
        """Run one frame."""

    def screen(self) -> NDArray[np.uint8]:
        """The picture shown after the last frame: uint8 RGB (144, 160, 3)."""
        if self._picture is None:
            self._picture = self._shown()
        return self._picture

    @abstractmethod
    def _shown(self) -> NDArray[np.uint8]: ...

    @abstractmethod
    def snapshot(self) -> Snapshot:
        """The machine as it is now; held buttons are not part of it."""

    @abstractmethod
    def restore(self, snapshot: Snapshot) -> None:
        """Go back to a snapshot.

        Raises:
            ValueError: it is not of this emulator, or of a cartridge of another kind. One of
                another game may be taken, for it does not say which game it is of.
        """

    @abstractmethod
    def close(self) -> None:
        """Switch off; may be called twice."""


def check_buttons(names: Iterable[str]) -> None:
    """Raise a ValueError for a name that is no button's."""
    for name in names:
        if name not in BUTTON_NAMES:
            raise ValueError(f"unknown button {name!r}; a Game Boy has {', '.join(BUTTON_NAMES)}")
