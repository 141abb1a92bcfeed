"""Duel by scripted players, offline: how often they win, and how long that takes them.

Nothing is learned and no clock runs; `rtagent experiment duel` shows how the game is learned.

    rtagent bench duel [--games N] [--json]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.command import command_line
from benchmarks.comparison import TICK_S
from benchmarks.worlds.duel_players import Player, competent, masher, play, random_player, view_of
from rtagent.cli.output import print_json
from rtagent.env.gameboy.duel import ENCOUNTERS, Duel

PLAYERS: dict[str, Callable[[int], Player]] = {
    "random": random_player,
    "A, A, A": lambda seed: masher,
    "competent": lambda seed: competent,
}
GROUPS = ((1, 4), (5, 8), (9, 16), (17, 32), (33, 48), (49, 64))
LONGEST_SEQUENCE = 80_000
"""Most ticks in which the competent player goes from the first encounter to the last."""


def win_rates(env: Duel, games: int) -> list[dict[str, Any]]:
    """How often each player wins, and how long it takes, by group of encounters."""
    rows = []
    for first, last in GROUPS:
        row: dict[str, Any] = {"encounters": [first, last]}
        for name, player in PLAYERS.items():
            rng = np.random.default_rng(first)
            outcomes = [
                play(env, player(game), int(rng.integers(first, last + 1)), seed=game)
                for game in range(games)
            ]
            row[name] = {
                "won": float(np.mean([reward > 0 for reward, _ in outcomes])),
                "ticks": float(np.mean([ticks for _, ticks in outcomes])),
            }
        rows.append(row)
    return rows


def whole_sequence(env: Duel) -> dict[str, int]:
    """How far the competent player gets in all encounters in order."""
    _, info = env.reset(seed=0)
    view, losses = view_of(env), 0
    for tick in range(LONGEST_SEQUENCE):
        _, reward, decided, truncated, info = env.step(competent(view, tick))
        losses += reward < 0
        if decided and reward > 0 and info["encounter"] == ENCOUNTERS:
            break
        if decided or truncated:
            env.reset()
    return {"encounter": info["encounter"], "ticks": tick + 1, "losses": losses}


def main() -> int:
    """Print how the scripted players do."""
    parser = command_line(__doc__)
    parser.add_argument("--games", type=int, default=10, help="per player and group")
    args = parser.parse_args()
    begun = time.monotonic()
    env = Duel()
    rows = win_rates(env, args.games)
    sequence = whole_sequence(env)
    env.close()
    took = time.monotonic() - begun
    if args.json:
        print_json({"groups": rows, "sequence": sequence, "took_s": took})
        return 0
    print(f"{'won (ticks)':12}" + "".join(f"{name:>16}" for name in PLAYERS))
    for row in rows:
        first, last = row["encounters"]
        cells = [f"{100 * row[name]['won']:.0f} % ({row[name]['ticks']:.0f})" for name in PLAYERS]
        print(f"{first:2d} to {last:2d}    " + "".join(f"{cell:>16}" for cell in cells))
    print(
        f"competent, in sequence: encounter {sequence['encounter']} after {sequence['ticks']} "
        f"ticks ({sequence['ticks'] * TICK_S / 60:.1f} minutes), {sequence['losses']} losses; "
        f"took {took:.0f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
