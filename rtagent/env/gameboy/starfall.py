"""Starfall, the game that comes with rtagent, as a Gymnasium environment.

A star falls, a boat catches it: one point. It falls past the boat: one of three lives.
An episode begins within microseconds: the title screen is played once, at construction, and
every way of leaving it is kept as a snapshot. No tick is lost on a reset in a world that does not
wait.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rtagent.config import GAME_BOY_HZ
from rtagent.env.gameboy.gambatte_machine import GameBoy, Snapshot
from rtagent.env.gameboy.rom import BUNDLED, read_manifest
from rtagent.env.preprocess import GREY, to_grey
from rtagent.errors import UserError

MAGIC = 0x5A
TITLE, PLAYING, GAME_OVER = 0, 1, 2

MAX_TICKS = 10_800
"""Three minutes: one who never misses a star would play for ever."""

_BOOT_FRAMES = 120
"""Far more than the cartridge needs to start."""

_PICTURE_LAG = 1
"""Frames from a change in RAM until the picture that the core gives shows it."""


@dataclass(frozen=True)
class _Start:
    """One way to begin: the machine, and the frame that the agent sees."""

    machine: Snapshot
    frame: NDArray[np.uint8]


class Starfall(gym.Env[NDArray[np.uint8], np.int64]):
    """Catch the falling stars.

    Observation: uint8 (84, 84), grey levels. Actions: 0 NOOP, 1 LEFT, 2 RIGHT. Reward: +1 for a
    star caught, -1 for a life lost. An episode terminates at game over.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": GAME_BOY_HZ}  # noqa: RUF012
    rate_hz = GAME_BOY_HZ
    noop_action = 0
    reward_range = (-1.0, 1.0)

    def __init__(
        self, render_mode: str | None = None, starts: int = 64, max_ticks: int = MAX_TICKS
    ) -> None:
        """Boot the cartridge and prepare the starts.

        Args:
            render_mode: none or `rgb_array`.
            starts: number of different sequences of stars among which `reset` picks.
            max_ticks: length at which an episode is truncated; 0: never.

        Raises:
            UserError: an argument is illegal, or the cartridge is missing or not the right one.
            RuntimeError: this process runs a Game Boy already.
        """
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise UserError(f"render_mode = {render_mode!r}: expected rgb_array or none")
        if starts < 1:
            raise UserError(f"starts = {starts}: at least 1 is needed")
        if max_ticks < 0:
            raise UserError(f"max_ticks = {max_ticks}: must not be negative")
        self.render_mode = render_mode
        self.observation_space = gym.spaces.Box(0, 255, GREY, np.uint8)
        rom = read_manifest(BUNDLED / "starfall")
        self.action_space = gym.spaces.Discrete(len(rom.actions))
        self._meanings = rom.action_meanings
        self._buttons = rom.actions
        self._at = rom.addresses
        self._max_ticks = max_ticks
        self._ticks = 0
        self._score = self._lives = 0
        self._game_boy = GameBoy(rom.read())
        self._starts = self._prepare(starts)

    def get_action_meanings(self) -> list[str]:
        """A word for each action."""
        return list(self._meanings)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        """Begin an episode at one of the starts, at once.

        Args:
            seed: decides which start this and the following episodes take.
            options: ignored.

        Returns:
            The first frame, and score, lives and level.
        """
        super().reset(seed=seed)
        start = self._starts[int(self.np_random.integers(len(self._starts)))]
        self._game_boy.restore(start.machine)
        self._ticks = 0
        info = self._info()
        self._score, self._lives = info["score"], info["lives"]
        return start.frame.copy(), info

    def step(
        self, action: int | np.int64
    ) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        """Hold the action's buttons for one frame of the machine.

        Returns:
            Frame, reward, terminated, truncated, and score, lives and level.
        """
        self._game_boy.press(self._buttons[int(action)])
        self._game_boy.step()
        self._ticks += 1
        info = self._info()
        reward = float(info["score"] - self._score - (self._lives - info["lives"]))
        self._score, self._lives = info["score"], info["lives"]
        terminated = self._screen() == GAME_OVER
        truncated = 0 < self._max_ticks <= self._ticks
        return to_grey(self._game_boy.screen()), reward, terminated, truncated, info

    def render(self) -> NDArray[np.uint8] | None:
        """The picture in full: uint8 RGB (144, 160, 3); none without `render_mode`."""
        return self._game_boy.screen() if self.render_mode else None

    def close(self) -> None:
        """Switch the machine off; may be called twice."""
        self._game_boy.close()

    def _prepare(self, count: int) -> list[_Start]:
        """Press START at `count` successive frames of the title: its frame seeds the stars."""
        self._boot()
        starts = []
        for _ in range(count):
            title = self._game_boy.snapshot()
            starts.append(self._start())
            self._game_boy.restore(title)
            self._game_boy.press()
            self._game_boy.step()
        return starts

    def _boot(self) -> None:
        for _ in range(_BOOT_FRAMES):
            self._game_boy.step()
            if self._game_boy.ram.u8(self._at["magic"]) == MAGIC:
                return
        found = self._game_boy.ram.u8(self._at["magic"])
        self.close()
        raise UserError(
            f"the cartridge did not start: expected {MAGIC:#x} at {self._at['magic']:#x} within "
            f"{_BOOT_FRAMES} frames, found {found:#x}"
        )

    def _start(self) -> _Start:
        self._game_boy.press(("START",))
        for _ in range(_BOOT_FRAMES):
            self._game_boy.step()
            if self._screen() == PLAYING:
                break
        else:
            self.close()
            raise UserError("the cartridge did not leave its title screen when START was pressed")
        self._game_boy.press()
        for _ in range(_PICTURE_LAG):
            self._game_boy.step()
        return _Start(self._game_boy.snapshot(), to_grey(self._game_boy.screen()))

    def _screen(self) -> int:
        return self._game_boy.ram.u8(self._at["screen"])

    def _info(self) -> dict[str, Any]:
        ram, at = self._game_boy.ram, self._at
        return {
            "score": ram.u16le(at["score"]),
            "lives": ram.u8(at["lives"]),
            "level": ram.u8(at["level"]),
        }
