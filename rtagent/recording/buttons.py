"""Converts held buttons to actions of an environment."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product

from rtagent.env.actions import Action
from rtagent.env.gameboy.machine import BUTTON_NAMES
from rtagent.errors import UserError

NOTHING = "NOOP"

_DIRECTIONS = ("", "UP", "DOWN", "LEFT", "RIGHT", "UP+LEFT", "UP+RIGHT", "DOWN+LEFT", "DOWN+RIGHT")


class Buttons:
    """The actions of an environment, by the buttons that they hold.

    Args:
        meanings: for each action its buttons, joined by `+`, or `NOOP`.
        noop: the action for held buttons if no action holds only buttons among them.

    Attributes:
        names: the buttons that some action holds.

    Raises:
        UserError: an action is no combination of buttons.
    """

    def __init__(self, meanings: Sequence[str], noop: Action) -> None:
        self._sets = [
            frozenset[str]() if meaning == NOTHING else frozenset(meaning.split("+"))
            for meaning in meanings
        ]
        if not self._sets or any(not each.issubset(BUTTON_NAMES) for each in self._sets):
            shown = ", ".join(meanings) or "not named"
            raise UserError(f"its actions are no buttons of a Game Boy: {shown}")
        self._noop = int(noop)
        held = frozenset[str]().union(*self._sets)
        self.names = tuple(name for name in BUTTON_NAMES if name in held)

    def exact(self, held: Iterable[str]) -> int | None:
        """The action that holds exactly these buttons; None if there is none."""
        wanted = frozenset(held)
        return self._sets.index(wanted) if wanted in self._sets else None

    def nearest(self, held: Sequence[str]) -> int:
        """The action that holds the most of these buttons and no other.

        `held` is in the order in which the buttons were pressed: of actions that hold equally many,
        the action with the newest button is taken.
        """
        order = {name: place for place, name in enumerate(held)}
        possible = [index for index, each in enumerate(self._sets) if each.issubset(order)]
        return max(
            possible,
            key=lambda index: (
                len(self._sets[index]),
                sorted((order[name] for name in self._sets[index]), reverse=True),
            ),
            default=self._noop,
        )


def every_combination() -> list[str]:
    """All combinations of a Game Boy's buttons without opposite directions."""
    switches = product(("", "A"), ("", "B"), ("", "SELECT"), ("", "START"))
    return [
        "+".join(filter(None, (*each, direction))) or NOTHING
        for each in switches for direction in _DIRECTIONS
    ]
