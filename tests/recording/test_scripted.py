"""Scripts as actions of an environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from rtagent.errors import UserError
from rtagent.recording.scripted import load_script
from rtagent.recording.scripted import play as play_script
from tests.recording.conftest import NOOP, PLAYING, RIGHT_A, START, Open


@pytest.fixture
def script(tmp_path: Path) -> Path:
    return tmp_path / "walk.keys"


def test_a_script_is_played_to_its_end(play: Open, script: Path) -> None:
    script.write_text("# begin\n2 START\n\n130 A RIGHT # both\n5\n")
    player = play()
    loaded = load_script(script, player, 137)
    assert loaded == [(2, START), (130, RIGHT_A), (5, NOOP)]
    told: list[int] = []
    play_script(player, loaded, told.append)
    assert told == [60, 60, 17]
    assert player.ticks == 137
    assert str(player.values["screen"]) == PLAYING


@pytest.mark.parametrize(("text", "reason"), [
    ("\ufeff2 START\n3 B A\n", r"line 2: B\+A is no action of gameboy"),
    ("2 START\n\n# B\n3 B A\n", r"line 4: B\+A is no action of gameboy; there are NOOP, LEFT"),
    ("# nothing\n", "0 frames: expected 1 to 100"),
    ("101\n", "101 frames: expected 1 to 100"),
    ("2 JUMP\n", "line 1: 'JUMP' is no button"),
])
def test_what_cannot_be_played_is_one_line(
    play: Open, script: Path, text: str, reason: str
) -> None:
    script.write_text(text)
    with pytest.raises(UserError, match=reason):
        load_script(script, play(), 100)


def test_many_actions_are_not_all_named(play: Open, script: Path) -> None:
    script.write_text("1 LEFT RIGHT")
    player = play(demonstrates=False, actions=None)
    with pytest.raises(UserError, match=r"LEFT\+RIGHT is no action .* and 132 more$"):
        load_script(script, player, 100)
