"""Duel, a game of progress: battles by menu against one opponent after the other.

Nothing happens until the player has chosen, so a slow player loses only time; but only a good
player gets on. An episode is one encounter. In a sequence the machine runs on from one encounter
to the next, so a reset costs nothing; every encounter also has a saved state at which an episode
can begin.
"""

from __future__ import annotations

from typing import Any, Literal

from rtagent.env.gameboy.environment import BundledGame, Frame, Info, grown
from rtagent.env.gameboy.machine import Snapshot
from rtagent.env.observers import to_grey
from rtagent.errors import UserError

ENCOUNTERS = 64
MAX_TICKS = 3600
"""A minute: far more than an encounter takes, even under random actions."""

TITLE, OPENING, COMMANDS, MOVES, BAG, TEAM, TELLING, RESULT = range(8)

_CHANCE_FRAMES = 32
"""An episode begins up to so many frames after its saved state, in which the cartridge's random
numbers change."""
_BYTES = ("encounter", "screen", "turn", "own_hp", "opponent_hp")
_WORDS = ("wins", "catches", "losses")


class Duel(BundledGame):
    """Defeat or catch one opponent after the other.

    Observation: uint8 (84, 84), grey levels. Actions: 0 A, 1 B, 2 LEFT, 3 UP, 4 RIGHT, 5 DOWN,
    6 NOOP. Reward: +1 for an opponent defeated or caught, -1 for an encounter lost; each of them
    terminates the episode. After a success the next encounter comes, after a loss the same again.

    Args:
        render_mode: none or `rgb_array`.
        encounter: the first encounter of a sequence, 1 to 64.
        opponents: `sequence`: one encounter after the other, as the game goes on; `random`: each
            episode begins at the saved state of any encounter.
        max_ticks: length at which an episode is truncated, whose encounter then begins again; 0:
            never.

    Raises:
        UserError: an argument is illegal, or the cartridge is missing or not the right one.
        RuntimeError: this process runs a Game Boy already.
    """

    noop_action = 6
    picture_lag = 12
    """Frames until the picture shows all that has changed in RAM: three of 18 rows per frame, and
    the pictures of both creatures."""
    _of_episode = ("_ticks", "_score", "_decided", "_began")

    def __init__(
        self, render_mode: str | None = None, encounter: int = 1,
        opponents: Literal["sequence", "random"] = "sequence", max_ticks: int = MAX_TICKS,
    ) -> None:
        if opponents not in ("sequence", "random"):
            raise UserError(f"opponents = {opponents!r}: expected sequence or random")
        self._first = _checked(encounter)
        super().__init__("duel", max_ticks, render_mode)
        self._random = opponents == "random"
        self._decided = True
        self._score = (0, 0)
        self._run((), self.picture_lag)
        self._title = self._machine.snapshot()
        self._states: dict[int, Snapshot] = {}
        for each in range(1, ENCOUNTERS + 1) if self._random else [self._first]:
            self._state_of(each)
        self._began: Snapshot | None = None

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Frame, Info]:
        """Begin an episode.

        Args:
            seed: begin anew from a saved state, repeatably. If None, go on with the sequence.
            options: `encounter`: begin at the saved state of this encounter.

        Returns:
            The first frame, and the figures encounter, screen, turn, own_hp, opponent_hp, wins,
            catches and losses.

        Raises:
            UserError: there is no such encounter.
        """
        super().reset(seed=seed)
        wanted = (options or {}).get("encounter")
        if wanted is None and self._random:
            wanted = int(self.np_random.integers(1, ENCOUNTERS + 1))
        elif wanted is None and (seed is not None or self._began is None):
            wanted = self._first
        if wanted is not None:
            self._machine.restore(self._state_of(_checked(wanted)))
            self._run((), int(self.np_random.integers(_CHANCE_FRAMES)))
        elif not self._decided and self._began is not None:
            self._machine.restore(self._began)
        self._began = self._machine.snapshot()
        self._ticks = 0
        self._decided = False
        info = self._info()
        self._score = _score(info)
        return to_grey(self._machine.screen()), info

    def _judged(self) -> tuple[float, bool, Info]:
        info = self._info()
        score, before = _score(info), self._score
        won, lost = map(grown, score, before)
        self._decided = score != before
        self._score = score
        return float(won - lost), self._decided, info

    def _state_of(self, encounter: int) -> Snapshot:
        """The machine at the first menu of an encounter, chosen on the title screen."""
        if encounter in self._states:
            return self._states[encounter]
        self._machine.restore(self._title)
        for _ in range(1, encounter):
            self._run(("RIGHT",), 1)
            self._run((), 1)
        self._run(("START",), 1)
        self._run_until("screen", COMMANDS)
        self._run((), self.picture_lag)
        found = self.u8("encounter")
        if found != encounter:
            self.close()
            raise UserError(f"the cartridge began encounter {found}, not {encounter}")
        self._states[encounter] = self._machine.snapshot()
        return self._states[encounter]

    def _info(self) -> Info:
        figures = {name: self.u8(name) for name in _BYTES}
        return figures | {name: self._u16(name) for name in _WORDS}


def _score(info: Info) -> tuple[int, int]:
    """Successes and losses of the run so far."""
    return info["wins"] + info["catches"], info["losses"]


def _checked(encounter: Any) -> int:
    if type(encounter) is not int or not 1 <= encounter <= ENCOUNTERS:
        raise UserError(f"encounter = {encounter!r}: expected 1 to {ENCOUNTERS}")
    return encounter
