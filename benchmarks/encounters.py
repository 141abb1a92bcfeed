"""The encounters of an imported game in sequence: each is played until it is won, or it is caught.

An encounter is a saved state; their names give the order, and after the last one comes the first.
Every one that is completed is written down, so that who watches the run can count them, and an
environment process that is started again goes on where its predecessor was.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium

from rtagent.env.gameboy.paper_games import PaperGame
from rtagent.env.registry import PAPER_GAMES, register

WON = "won"
"""The end of a battle, in its reward file, that completes it; of a catch, a reward does."""


class Encounters(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Takes the starts of a game one after the other.

    Args:
        game: one of the paper's.
        log: file with a line for each completed encounter: the ticks played in all until then.
    """

    def __init__(self, game: PaperGame, log: Path) -> None:
        super().__init__(game)
        self._game, self._log = game, log
        ends = completed(log)
        self._done, self._ticks = len(ends), ends[-1] if ends else 0
        self._total = 0.0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Begin the first encounter that is not completed."""
        self._total = 0.0
        start = {"start": self._done % self._game.starts}
        return self._game.reset(seed=seed, options=start)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One tick; whether the encounter is completed shows at the end of its episode."""
        seen = self._game.step(action)
        self._ticks += 1
        self._total += seen[1]
        ended_by = seen[4].get("ended_by")
        if ended_by == WON or (ended_by == "left" and self._total > 0.0):
            self._done += 1
            with self._log.open("a") as file:
                file.write(f"{self._ticks}\n")
        return seen


def completed(log: Path) -> list[int]:
    """Ticks at which encounters were completed, in order; a line that is half written is none."""
    if not log.exists():
        return []
    whole, _, _ = log.read_text().rpartition("\n")
    return [int(line) for line in whole.split()]


def make(game: str, log: str, **settings: Any) -> gymnasium.Env[Any, Any]:
    """A game of the paper, by its id, with its encounters in sequence."""
    register()
    rom, rewards = PAPER_GAMES[game]
    return Encounters(PaperGame(rom, rewards, **settings), Path(log))


gymnasium.register("Encounters-v0", entry_point=make)
