"""Duel, a game of progress: battles by menu against one opponent after the other.

Nothing happens until the player has chosen, so whoever is slow loses nothing but time; but only
who plays well gets on. An episode is one encounter. In a sequence the machine simply runs on from
one to the next, so a reset costs nothing; every encounter also has a saved state at which an
episode can begin.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rtagent.env.gameboy.environment import BundledGame
from rtagent.env.gameboy.gambatte_machine import Snapshot
from rtagent.env.preprocess import to_grey
from rtagent.errors import UserError

ENCOUNTERS = 64
MAX_TICKS = 3600
"""A minute: far more than an encounter takes, even when played at random."""

TITLE, OPENING, COMMANDS, MOVES, BAG, TEAM, TELLING, RESULT = range(8)

_PICTURE_FRAMES = 12
"""Frames until the picture shows all that has changed in RAM: three rows of 18 per frame, and the
pictures of both creatures."""
_CHANCE_FRAMES = 32
"""An episode that begins at a saved state begins up to so many frames later: chance moves on."""
_FIGURES = {
    "encounter": "u8", "screen": "u8", "turn": "u8", "own_hp": "u8", "opponent_hp": "u8",
    "wins": "u16le", "catches": "u16le", "losses": "u16le",
}


class Duel(BundledGame):
    """Defeat or catch one opponent after the other.

    Observation: uint8 (84, 84), grey levels. Actions: 0 A, 1 B, 2 LEFT, 3 UP, 4 RIGHT, 5 DOWN,
    6 NOOP. Reward: +1 for an opponent defeated or caught, -1 for an encounter lost; each of them
    terminates the episode. After a success the next encounter comes, after a loss the same again.
    """

    noop_action = 6

    def __init__(
        self,
        render_mode: str | None = None,
        encounter: int = 1,
        opponents: Literal["sequence", "random"] = "sequence",
        max_ticks: int = MAX_TICKS,
    ) -> None:
        """Boot the cartridge and prepare the saved states.

        Args:
            render_mode: none or `rgb_array`.
            encounter: where a sequence begins, 1 to 64.
            opponents: `sequence`: one encounter after the other, as the game goes on; `random`:
                each episode begins at the saved state of any encounter.
            max_ticks: length at which an episode is truncated; 0: never. Its encounter begins
                again.

        Raises:
            UserError: an argument is illegal, or the cartridge is missing or not the right one.
            RuntimeError: this process runs a Game Boy already.
        """
        if opponents not in ("sequence", "random"):
            raise UserError(f"opponents = {opponents!r}: expected sequence or random")
        self._first = _checked(encounter)
        super().__init__("duel", max_ticks, render_mode)
        self._random = opponents == "random"
        self._decided = True
        self._score: tuple[int, int] = (0, 0)
        self._run((), _PICTURE_FRAMES)
        self._title = self._machine.snapshot()
        self._states: dict[int, Snapshot] = {}
        for each in range(1, ENCOUNTERS + 1) if self._random else [self._first]:
            self._state_of(each)
        self._began: Snapshot | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        """Begin an episode.

        Args:
            seed: begin anew from a saved state, and repeatably. If None, go on with the sequence.
            options: `encounter`: begin at the saved state of this one.

        Returns:
            The first frame, and encounter, screen, turn, own_hp, opponent_hp, wins, catches and
            losses.

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
            self._begin_at(_checked(wanted))
        elif not self._decided and self._began is not None:
            self._machine.restore(self._began)
        self._began = self._machine.snapshot()
        self._ticks = 0
        self._decided = False
        info = self._info()
        self._score = _score(info)
        return to_grey(self._machine.screen()).copy(), info

    def _judged(self) -> tuple[float, bool, dict[str, Any]]:
        info = self._info()
        score, before = _score(info), self._score
        reward = float((score[0] - before[0]) - (score[1] - before[1]))
        self._decided = score != before
        self._score = score
        return reward, self._decided, info

    def _begin_at(self, encounter: int) -> None:
        self._machine.restore(self._state_of(encounter))
        self._run((), int(self.np_random.integers(_CHANCE_FRAMES)))

    def _state_of(self, encounter: int) -> Snapshot:
        """The machine at the first menu of an encounter, reached by the title screen's choice."""
        state = self._states.get(encounter)
        if state is not None:
            return state
        self._machine.restore(self._title)
        for _ in range(1, encounter):
            self._run(("RIGHT",), 1)
            self._run((), 1)
        self._run(("START",), 1)
        self._run_until("screen", COMMANDS)
        self._run((), _PICTURE_FRAMES)
        found = self._u8("encounter")
        if found != encounter:
            self.close()
            raise UserError(f"the cartridge began encounter {found}, not {encounter}")
        self._states[encounter] = self._machine.snapshot()
        return self._states[encounter]

    def _info(self) -> dict[str, Any]:
        return {
            name: self._u8(name) if kind == "u8" else self._u16(name)
            for name, kind in _FIGURES.items()
        }


def _score(info: dict[str, Any]) -> tuple[int, int]:
    """Successes and losses of the run so far."""
    return info["wins"] + info["catches"], info["losses"]


def _checked(encounter: Any) -> int:
    if type(encounter) is not int or not 1 <= encounter <= ENCOUNTERS:
        raise UserError(f"encounter = {encounter!r}: expected 1 to {ENCOUNTERS}")
    return encounter
