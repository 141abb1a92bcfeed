"""The Gymnasium environment of every Game Boy game."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, ClassVar, TypeAlias

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rtagent.config import GAME_BOY_HZ
from rtagent.env.gameboy.gambatte_machine import GameBoy
from rtagent.env.gameboy.machine import Machine
from rtagent.env.gameboy.rom import BUNDLED, read_manifest
from rtagent.env.observers import GREY, to_grey
from rtagent.errors import UserError

MAGIC = 0x5A
"""The value of a bundled game's variable `magic` once the game has started."""
BOOT_FRAMES = 120
"""Far more than a bundled game needs to start."""

Frame: TypeAlias = NDArray[np.uint8]
Info: TypeAlias = dict[str, Any]


class GameBoyEnv(gym.Env[Frame, np.int64]):
    """A machine that is observed in grey levels, uint8 (84, 84), and played by its buttons.

    Args:
        buttons: the buttons that each action holds.
        meanings: a word for each action.
        max_ticks: length at which an episode is truncated; 0: never.
        render_mode: none or `rgb_array`.

    Raises:
        UserError: an argument is illegal.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": GAME_BOY_HZ}  # noqa: RUF012
    rate_hz = GAME_BOY_HZ
    _machine: Machine
    _of_episode: ClassVar[tuple[str, ...]] = ("_ticks",)
    """Attributes that a step changes, beside the machine."""

    def __init__(
        self, buttons: Sequence[tuple[str, ...]], meanings: Sequence[str], max_ticks: int,
        render_mode: str | None,
    ) -> None:
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise UserError(f"render_mode = {render_mode!r}: expected rgb_array or none")
        self.render_mode = render_mode
        self.observation_space = gym.spaces.Box(0, 255, GREY, np.uint8)
        self.action_space = gym.spaces.Discrete(len(buttons))
        self._buttons, self._meanings = buttons, meanings
        self._max_ticks = at_least_0("max_ticks", max_ticks)
        self._ticks = 0

    def get_action_meanings(self) -> list[str]:
        """A word for each action."""
        return list(self._meanings)

    def step(self, action: int | np.int64) -> tuple[Frame, float, bool, bool, Info]:
        """Hold the action's buttons for one frame of the machine.

        Returns:
            Frame, reward, terminated, truncated, and the game's variables.
        """
        self._machine.press(self._buttons[int(action)])
        self._machine.step()
        self._ticks += 1
        reward, over, info = self._judged()
        truncated = not over and 0 < self._max_ticks <= self._ticks
        return to_grey(self._machine.screen()), reward, over, truncated, info

    def _judged(self) -> tuple[float, bool, Info]:
        """Reward of the newest frame, whether the episode is over, and the game's variables."""
        raise NotImplementedError

    def render(self) -> Frame | None:
        """The machine's picture: uint8 RGB (144, 160, 3); None without `render_mode`."""
        # A copy: the machine shows its own again when it goes back to a snapshot.
        return self._machine.screen().copy() if self.render_mode else None

    def clone_state(self) -> Any:
        """Everything that a step changes, for `restore_state`."""
        kept = {name: getattr(self, name) for name in self._of_episode}
        return self._machine.snapshot(), copy.deepcopy(kept)

    def restore_state(self, state: Any) -> None:
        """Go back to what `clone_state` gave; it may be used again."""
        snapshot, kept = state
        self._machine.restore(snapshot)
        vars(self).update(copy.deepcopy(kept))

    def close(self) -> None:
        """Switch the machine off; may be called twice."""
        self._machine.close()

    def _run(self, buttons: tuple[str, ...], frames: int) -> None:
        self._machine.press(buttons)
        for _ in range(frames):
            self._machine.step()


class BundledGame(GameBoyEnv):
    """A game that comes with rtagent.

    Args:
        folder: of its cartridge and manifest.
        max_ticks, render_mode: as in `GameBoyEnv`.

    Raises:
        UserError: an argument is illegal, or the cartridge is missing or not the right one.
        RuntimeError: this process runs a Game Boy already.
    """

    _machine: GameBoy

    def __init__(self, folder: str, max_ticks: int, render_mode: str | None) -> None:
        rom = read_manifest(BUNDLED / folder)
        super().__init__(rom.actions, rom.action_meanings, max_ticks, render_mode)
        self._at = rom.addresses
        self._machine = GameBoy(rom.read())
        self._run_until("magic", MAGIC)

    def perturb(self, rng: np.random.Generator) -> None:
        """Give the cartridge's generator of random numbers another state."""
        # It would never leave the state 0.
        self._machine.ram.set_u16le(self._at["chance"], int(rng.integers(1, 1 << 16)))

    def _run_until(self, name: str, value: int, buttons: tuple[str, ...] = ()) -> None:
        """Run until a variable has a value."""
        for _ in range(BOOT_FRAMES):
            self._run(buttons, 1)
            if self.u8(name) == value:
                return
        found = self.u8(name)
        self.close()
        raise UserError(
            f"the cartridge did not start: expected {value:#x} at {self._at[name]:#x} within "
            f"{BOOT_FRAMES} frames, found {found:#x}"
        )

    def u8(self, name: str) -> int:
        """The value of a variable of one byte, by its name in the manifest."""
        return self._machine.ram.u8(self._at[name])

    def _u16(self, name: str) -> int:
        return self._machine.ram.u16le(self._at[name])


def grown(now: int, before: int) -> int:
    """By how much a counter of two bytes has grown, which begins at 0 again after 65,535."""
    return (now - before) & 0xFFFF


def at_least_0(name: str, value: Any) -> int:
    """The argument's value, or a UserError if it is not a whole number from 0 on."""
    if type(value) is not int or value < 0:
        raise UserError(f"env.kwargs.{name} = {value!r}: expected a whole number, 0 or more")
    return value
