"""Starfall, the game that comes with rtagent, as a Gymnasium environment.

A star that the boat catches is a point; a star that falls past the boat costs one of three lives.
An episode begins within microseconds, so that a world that does not wait loses no tick on a reset:
the title screen is played once, at construction, and a snapshot is kept of each way of leaving it.
"""

from __future__ import annotations

from rtagent.env.gameboy.environment import BundledGame, Frame, Info, grown
from rtagent.env.gameboy.machine import Snapshot
from rtagent.env.observers import to_grey
from rtagent.errors import UserError

PLAYING, GAME_OVER = 1, 2

MAX_TICKS = 10_800
"""Three minutes: an episode in which no star is missed would not end otherwise."""


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
    picture_lag = 1
    _of_episode = ("_ticks", "_score", "_lives")
    reward_range = (-1.0, 1.0)

    def __init__(
        self, render_mode: str | None = None, starts: int = 64, max_ticks: int = MAX_TICKS
    ) -> None:
        if type(starts) is not int or starts < 1:
            raise UserError(f"starts = {starts!r}: expected a whole number, 1 or more")
        super().__init__("starfall", max_ticks, render_mode)
        self._score = self._lives = 0
        self._starts = self._prepare(starts)

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Frame, Info]:
        """Begin an episode at one of the starts; the seed decides which, from now on.

        Returns:
            The first frame, and score, lives and level.
        """
        super().reset(seed=seed)
        snapshot, frame = self._starts[int(self.np_random.integers(len(self._starts)))]
        self._machine.restore(snapshot)
        self._ticks = 0
        info = self._info()
        self._score, self._lives = info["score"], info["lives"]
        return frame.copy(), info

    def _judged(self) -> tuple[float, bool, Info]:
        info = self._info()
        reward = float(grown(info["score"], self._score) - (self._lives - info["lives"]))
        self._score, self._lives = info["score"], info["lives"]
        return reward, self.u8("screen") == GAME_OVER, info

    def _prepare(self, count: int) -> list[tuple[Snapshot, Frame]]:
        """The machine and the first frame, for START pressed at `count` frames of the title.

        The frame at which START is pressed seeds the stars.
        """
        starts = []
        for _ in range(count):
            title = self._machine.snapshot()
            self._run_until("screen", PLAYING, ("START",))
            self._run((), self.picture_lag)
            starts.append((self._machine.snapshot(), to_grey(self._machine.screen())))
            self._machine.restore(title)
            self._run((), 1)
        return starts

    def _info(self) -> Info:
        return {"score": self._u16("score"), "lives": self.u8("lives"), "level": self.u8("level")}
