"""Play by a script of keys (`env/gameboy/key_script.py`), without a clock: as fast as possible."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rtagent.env.gameboy.key_script import load_keys
from rtagent.errors import UserError
from rtagent.recording.buttons import NOTHING
from rtagent.recording.player import Player

PROGRESS_EVERY_TICKS = 60
MOST_SHOWN = 12
"""Most actions named in an error."""

Script = list[tuple[int, int]]
"""For each line the ticks, and the action executed in them."""


def load_script(path: Path, player: Player, most_ticks: int) -> Script:
    """Read a script, as actions of the player's environment.

    Raises:
        UserError: it cannot be read, is empty or longer than `most_ticks`, or a line holds buttons
            that are no action of the environment; the message names the line.
    """
    keys = load_keys(path)
    total = sum(frames for frames, _, _ in keys)
    if not 0 < total <= most_ticks:
        raise UserError(f"{path}: {total} frames: expected 1 to {most_ticks}")
    script: Script = []
    for frames, buttons, line in keys:
        action = player.buttons.exact(buttons)
        if action is None:
            raise UserError(
                f"{path}: line {line}: {'+'.join(buttons) or NOTHING} is no action of "
                f"{player.environment}; there are {_shown(player.action_meanings)}"
            )
        script.append((frames, action))
    return script


def play(player: Player, script: Script, progress: Callable[[int], None]) -> None:
    """Play a script to its end; `progress` is called with the number of ticks since its last call.

    Raises:
        UserError: an episode cannot begin.
    """
    played = 0
    for ticks, action in script:
        for _ in range(ticks):
            player.step(action)
            played += 1
            if played == PROGRESS_EVERY_TICKS:
                progress(played)
                played = 0
    progress(played)


def _shown(meanings: tuple[str, ...]) -> str:
    more = [f"and {len(meanings) - MOST_SHOWN} more"] if len(meanings) > MOST_SHOWN else []
    return ", ".join([*meanings[:MOST_SHOWN], *more])
