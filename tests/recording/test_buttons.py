"""Held buttons as actions."""

from __future__ import annotations

import pytest

from rtagent.errors import UserError
from rtagent.recording.buttons import Buttons, every_combination

MEANINGS = ("A", "B", "LEFT", "RIGHT", "RIGHT+A", "NOOP")


@pytest.mark.parametrize(("held", "action"), [
    ([], "NOOP"),
    (["START"], "NOOP"),
    (["B"], "B"),
    (["A", "RIGHT"], "RIGHT+A"),
    (["A", "RIGHT", "B"], "RIGHT+A"),
    (["LEFT", "A"], "A"),
    (["A", "LEFT"], "LEFT"),
    (["B", "LEFT", "START"], "LEFT"),
])
def test_the_nearest_action_has_most_of_the_buttons_and_the_newest(
    held: list[str], action: str
) -> None:
    assert MEANINGS[Buttons(MEANINGS, 5).nearest(held)] == action


def test_among_larger_combinations_the_newest_button_decides() -> None:
    buttons = Buttons(("UP+LEFT", "A+B", "NOOP"), 2)
    assert buttons.nearest(["A", "LEFT", "UP", "B"]) == 1
    assert buttons.nearest(["B", "A", "LEFT", "UP"]) == 0


def test_only_a_whole_combination_is_exact() -> None:
    buttons = Buttons(MEANINGS, 5)
    assert buttons.exact(["A", "RIGHT"]) == 4
    assert buttons.exact([]) == 5
    assert buttons.exact(["A", "B"]) is None
    assert buttons.names == ("B", "LEFT", "RIGHT", "A")


def test_without_an_action_for_nothing_it_is_the_declared_noop() -> None:
    assert Buttons(("A", "B"), 1).nearest([]) == 1


@pytest.mark.parametrize("meanings", [(), ("NOOP", "FIRE"), ("NOOP", "A+"), ("left",)])
def test_other_actions_are_refused(meanings: tuple[str, ...]) -> None:
    with pytest.raises(UserError, match="no buttons of a Game Boy"):
        Buttons(meanings, 0)


def test_every_combination_is_an_action_of_its_own() -> None:
    every = every_combination()
    buttons = Buttons(every, 0)
    assert len(every) == 144
    assert every[buttons.nearest([])] == "NOOP"
    assert buttons.exact(["UP", "LEFT", "A", "B", "START", "SELECT"]) is not None
    assert buttons.exact(["UP", "DOWN"]) is None
    assert every[buttons.nearest(["UP", "DOWN"])] == "DOWN"
