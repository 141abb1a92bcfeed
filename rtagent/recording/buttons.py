"""Buttons that somebody holds, as actions of an environment."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product

from rtagent.env.gameboy.machine import BUTTON_NAMES
from rtagent.errors import UserError

NOTHING = "NOOP"

_DIRECTIONS = ("", "UP", "DOWN", "LEFT", "RIGHT", "UP+LEFT", "UP+RIGHT", "DOWN+LEFT", "DOWN+RIGHT")


class Buttons:
    """The actions of an environment, by the buttons that they hold.

    Args:
        meanings: for each action its buttons, joined by `+`, or `NOOP`.
        noop: the action for held buttons of which no action is a part.

    Attributes:
        names: the buttons that some action holds.

    Raises:
        UserError: an action is something else.
    """

    def __init__(self, meanings: Sequence[str], noop: int) -> None:
        self._sets = [_set_of(meaning) for meaning in meanings]
        if not self._sets or any(not each.issubset(BUTTON_NAMES) for each in self._sets):
            shown = ", ".join(meanings) or "not named"
            raise UserError(f"its actions are no buttons of a Game Boy: {shown}")
        self._noop = noop
        held = frozenset[str]().union(*self._sets)
        self.names = tuple(name for name in BUTTON_NAMES if name in held)

    def exact(self, held: Iterable[str]) -> int | None:
        """The action that holds exactly these buttons, if there is one."""
        wanted = frozenset(held)
        return self._sets.index(wanted) if wanted in self._sets else None

    def nearest(self, held: Sequence[str]) -> int:
        """The action that holds most of these buttons and no other.

        Held is in the order in which they were pressed: among actions with equally many of them the
        one with the newest button is taken.
        """
        order = {name: place for place, name in enumerate(held)}
        parts = [index for index, each in enumerate(self._sets) if each.issubset(order)]
        return max(
            parts,
            key=lambda index: (
                len(self._sets[index]),
                sorted((order[name] for name in self._sets[index]), reverse=True),
            ),
            default=self._noop,
        )


def every_combination() -> list[str]:
    """All that can be held on a Game Boy: no two opposite directions."""
    switches = product(("", "A"), ("", "B"), ("", "SELECT"), ("", "START"))
    return [
        "+".join(filter(None, (*each, direction))) or NOTHING
        for each in switches for direction in _DIRECTIONS
    ]


def _set_of(meaning: str) -> frozenset[str]:
    return frozenset() if meaning == NOTHING else frozenset(meaning.split("+"))
