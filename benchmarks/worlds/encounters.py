"""The encounters of an imported game in sequence: each is repeated until it is completed.

A battle is completed when it is won, a catch when it brings a reward. An encounter is a saved
state; the states' names give the order, and after the last comes the first. Each completed
encounter is logged, so that a watcher of the run can count them, and an environment process that is
started again continues where its predecessor was.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium

from rtagent.env.gameboy.paper_games import PaperGame
from rtagent.env.registry import PAPER_GAMES, register

WON = "won"
"""The end of a battle, as its reward file names it, that completes the battle."""


class Encounters(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Goes through the encounters of a game.

    Args:
        game: a game of the paper.
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
        """One tick; at the end of an episode, log the encounter if it is completed."""
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
    """Ticks at which encounters were completed, in order; ignores a half-written line."""
    if not log.exists():
        return []
    whole, _, _ = log.read_text().rpartition("\n")
    return [int(line) for line in whole.split()]


def make(game: str, log: str, **settings: Any) -> gymnasium.Env[Any, Any]:
    """A game of the paper, by its id, with its encounters in sequence."""
    register()
    rom, rewards = PAPER_GAMES[game]
    return Encounters(PaperGame(rom, rewards, **settings), Path(log))


gymnasium.register("Encounters-v0", entry_point=f"{__name__}:make")
