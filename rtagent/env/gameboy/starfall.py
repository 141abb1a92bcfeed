"""Starfall, the game that comes with rtagent, as a Gymnasium environment.

A star falls, a boat catches it: one point. It falls past the boat: one of three lives.
An episode begins within microseconds: the title screen is played once, at construction, and
every way of leaving it is kept as a snapshot. No tick is lost on a reset in a world that does not
wait.
"""

from __future__ import annotations

from typing import NamedTuple

from rtagent.env.gameboy.environment import BundledGame, Frame, Info
from rtagent.env.gameboy.machine import Snapshot
from rtagent.env.preprocess import to_grey
from rtagent.errors import UserError

TITLE, PLAYING, GAME_OVER = 0, 1, 2

MAX_TICKS = 10_800
"""Three minutes: one who never misses a star would play for ever."""

_PICTURE_LAG = 1
"""Frames from a change in RAM until the picture that the core gives shows it."""


class _Start(NamedTuple):
    """One way to begin: the machine, and the frame that the agent sees."""

    machine: Snapshot
    frame: Frame


class Starfall(BundledGame):
    """Catch the falling stars.

    Observation: uint8 (84, 84), grey levels. Actions: 0 NOOP, 1 LEFT, 2 RIGHT. Reward: +1 for a
    star caught, -1 for a life lost. An episode terminates at game over.

    Args:
        render_mode: none or `rgb_array`.
        starts: number of different sequences of stars among which `reset` picks.
        max_ticks: length at which an episode is truncated; 0: never.

    Raises:
        UserError: an argument is illegal, or the cartridge is missing or not the right one.
        RuntimeError: this process runs a Game Boy already.
    """

    noop_action = 0
    picture_lag = _PICTURE_LAG
    _of_episode = ("_ticks", "_score", "_lives")
    reward_range = (-1.0, 1.0)

    def __init__(
        self, render_mode: str | None = None, starts: int = 64, max_ticks: int = MAX_TICKS
    ) -> None:
        if starts < 1:
            raise UserError(f"starts = {starts}: at least 1 is needed")
        super().__init__("starfall", max_ticks, render_mode)
        self._score = self._lives = 0
        self._starts = self._prepare(starts)

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Frame, Info]:
        """Begin an episode at one of the starts, which the seed decides from now on; at once.

        Returns:
            The first frame, and score, lives and level.
        """
        super().reset(seed=seed)
        start = self._starts[int(self.np_random.integers(len(self._starts)))]
        self._machine.restore(start.machine)
        self._ticks = 0
        info = self._info()
        self._score, self._lives = info["score"], info["lives"]
        return start.frame.copy(), info

    def _judged(self) -> tuple[float, bool, Info]:
        info = self._info()
        reward = float(info["score"] - self._score - (self._lives - info["lives"]))
        self._score, self._lives = info["score"], info["lives"]
        return reward, self.u8("screen") == GAME_OVER, info

    def _prepare(self, count: int) -> list[_Start]:
        """Press START at `count` successive frames of the title: its frame seeds the stars."""
        starts = []
        for _ in range(count):
            title = self._machine.snapshot()
            self._run_until("screen", PLAYING, ("START",))
            self._run((), _PICTURE_LAG)
            starts.append(_Start(self._machine.snapshot(), to_grey(self._machine.screen())))
            self._machine.restore(title)
            self._run((), 1)
        return starts

    def _info(self) -> Info:
        return {"score": self._u16("score"), "lives": self.u8("lives"), "level": self.u8("level")}
