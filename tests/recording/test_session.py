"""Play by keyboard, on a virtual clock."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from rtagent.clock import VirtualClock
from rtagent.config import GAME_BOY_HZ
from rtagent.errors import UserError
from rtagent.recording import tape as tape_module
from rtagent.recording.recorder import Recorder
from rtagent.recording.session import IDLE_S, Session
from rtagent.storage.demonstration_file import load_demonstration
from tests.cartridges import REWARDS
from tests.recording.conftest import LEFT, NOOP, PLAYING, RIGHT_A, START, TITLE, Open


@pytest.fixture
def focused(session: Session) -> Session:
    """A page is open and has the focus."""
    session.arrive()
    session.handle({"focus": True})
    return session


def pass_time(session: Session, clock: VirtualClock, seconds: float, late: float = 0.0) -> int:
    """Run for some seconds, each wake-up late by `late`; the number of ticks played."""
    before, until = session.shown()["ticks"], clock.now() + seconds
    while clock.now() < until:
        clock.advance(session.run_due() + late)
    return int(session.shown()["ticks"]) - before


def test_the_clock_runs_for_a_page_with_the_focus(session: Session, clock: VirtualClock) -> None:
    assert session.run_due() == IDLE_S
    page = session.arrive()
    assert session.run_due() == IDLE_S
    session.handle({"focus": True})
    assert pass_time(session, clock, 1.0) == 60
    session.handle({"do": "pause"})
    assert pass_time(session, clock, 1.0) == 0
    session.handle({"do": "pause"})
    session.handle({"focus": False})
    assert pass_time(session, clock, 1.0) == 0
    session.handle({"focus": True})
    session.leave(page)
    assert pass_time(session, clock, 1.0) == 0


def test_being_late_each_time_adds_up_to_nothing(focused: Session, clock: VirtualClock) -> None:
    played = pass_time(focused, clock, 20.0, late=0.005)
    assert abs(played - 20.0 * GAME_BOY_HZ) <= 2


def test_after_a_hold_up_the_game_does_not_hurry(focused: Session, clock: VirtualClock) -> None:
    focused.run_due()
    clock.advance(3.5 / GAME_BOY_HZ)
    focused.run_due()
    assert focused.shown()["ticks"] == 4
    clock.advance(10.0)
    assert 0.0 < focused.run_due() <= 1.0 / GAME_BOY_HZ
    assert focused.shown()["ticks"] == 5


def played_actions(
    session: Session, clock: VirtualClock, file: Path, *said: tuple[dict[str, Any], ...]
) -> list[int]:
    """Record ticks, before each of which some messages come; their actions."""
    session.run_due()
    session.handle({"do": "record"})
    for messages in said:
        for message in messages:
            session.handle(message)
        clock.advance(1.0 / GAME_BOY_HZ)
        session.run_due()
    session.handle({"do": "record"})
    return load_demonstration(file).actions.tolist()[1:]


@pytest.mark.parametrize(("held", "actions"), [
    ([[["LEFT"]], [], [["RIGHT", "A"]], [["UP"]], [[]]], [LEFT, LEFT, RIGHT_A, NOOP, NOOP]),
    # A tap between two ticks counts for one.
    ([[["LEFT"], ["LEFT", "START"], ["LEFT"]], []], [START, LEFT]),
])
def test_held_keys_are_actions(
    focused: Session, clock: VirtualClock, tmp_path: Path, held: list[list[list[str]]],
    actions: list[int],
) -> None:
    said = (tuple({"keys": keys} for keys in each) for each in held)
    assert played_actions(focused, clock, tmp_path / "fight.demo", *said) == actions


def test_a_pause_is_not_caught_up_with(
    focused: Session, clock: VirtualClock, tmp_path: Path
) -> None:
    focused.run_due()
    focused.handle({"do": "pause"})
    focused.handle({"keys": ["START"]})
    focused.handle({"keys": []})
    pass_time(focused, clock, 3.5 / GAME_BOY_HZ)
    focused.handle({"do": "pause"})
    focused.handle({"do": "record"})
    focused.run_due()
    assert focused.shown()["ticks"] == 1
    focused.handle({"do": "finish"})
    assert load_demonstration(tmp_path / "fight.demo").actions.tolist() == [NOOP, NOOP]


def test_keys_are_released_with_focus_and_page(
    focused: Session, clock: VirtualClock, tmp_path: Path
) -> None:
    again = ({"focus": True},)
    assert played_actions(
        focused, clock, tmp_path / "fight.demo", ({"keys": ["LEFT"]},), ({"focus": False}, *again),
    ) == [LEFT, NOOP]
    focused.handle({"keys": ["LEFT"]})
    focused.leave(focused.page)
    focused.arrive()
    assert played_actions(focused, clock, tmp_path / "fight.demo", again)[-1:] == [NOOP]


def test_the_newest_page_plays(focused: Session) -> None:
    first, second = focused.page, focused.arrive()
    assert not focused.running
    focused.handle({"focus": True})
    focused.leave(first)
    assert focused.running
    focused.leave(second)
    assert focused.page == 0


def test_the_controls_say_what_they_did(
    focused: Session, clock: VirtualClock, tmp_path: Path
) -> None:
    pass_time(focused, clock, 0.1)
    focused.handle({"do": "save"})
    shown = focused.shown()
    assert (shown["told"], shown["states"]) == (
        "Saved starfall-0001.state.", ["starfall-0001.state"]
    )
    focused.handle({"keys": ["START"]})
    focused.handle({"do": "record"})
    assert focused.shown()["recording"]
    assert focused.shown()["ticks"] == 0
    pass_time(focused, clock, 0.5)
    assert focused.shown()["values"]["screen"] == PLAYING
    focused.handle({"do": "restart"})
    assert focused.shown()["values"]["screen"] == TITLE
    pass_time(focused, clock, 0.1)
    focused.handle({"do": "finish"})
    shown = focused.shown()
    assert (shown["finished"], shown["running"], shown["recording"]) == (True, False, False)
    assert (shown["demonstration"], shown["episodes"]) == ("fight.demo", 2)
    assert len(load_demonstration(tmp_path / "fight.demo").flags) == shown["recorded_ticks"]
    assert pass_time(focused, clock, 1.0) == 0


def test_what_cannot_be_done_is_told_and_the_game_goes_on(
    focused: Session, clock: VirtualClock, tmp_path: Path
) -> None:
    (tmp_path / "states").rmdir()
    focused.handle({"do": "save"})
    assert focused.shown()["told"].startswith("cannot read the states in ")
    file = tmp_path / "fight.demo"
    focused.handle({"do": "record"})
    pass_time(focused, clock, 0.1)
    file.mkdir()
    focused.handle({"do": "finish"})
    assert focused.shown()["told"].startswith("cannot write the demonstration ")
    assert not focused.finished
    assert pass_time(focused, clock, 0.1) > 0
    file.rmdir()
    focused.handle({"do": "finish"})
    assert focused.finished
    assert file.is_file()


def test_recording_stops_where_an_episode_cannot_begin(
    play: Open, rewards: Path, tmp_path: Path, clock: VirtualClock
) -> None:
    rewards.write_text(REWARDS.replace("value = 2", "value = 0"))
    session = Session(Recorder(play(), "x", None, tmp_path / "x.demo"), clock)
    session.arrive()
    session.handle({"focus": True})
    session.handle({"do": "record"})
    assert "over before it begins" in session.shown()["told"]
    assert not session.shown()["recording"]
    assert pass_time(session, clock, 0.1) > 0


def test_recording_stops_when_the_demonstration_is_full(
    focused: Session, clock: VirtualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tape_module, "MOST_TICKS", 20)
    focused.handle({"do": "record"})
    pass_time(focused, clock, 1.0)
    shown = focused.shown()
    assert (shown["recording"], shown["recorded_ticks"]) == (False, 19)
    assert "is full" in shown["told"]
    assert len(load_demonstration(tmp_path / "fight.demo").flags) == 19


def test_the_picture_is_the_games(session: Session, recorder: Recorder) -> None:
    picture = session.picture()
    assert np.frombuffer(picture[:4], "<u2").tolist() == [160, 144]
    rgba = np.frombuffer(picture[4:], np.uint8).reshape(144, 160, 4)
    np.testing.assert_array_equal(rgba[..., :3], recorder.player.screen())
    assert (rgba[..., 3] == 255).all()


@pytest.mark.parametrize("message", [
    None, [], "save", {}, {"do": "quit"}, {"do": 1}, {"keys": "A"}, {"keys": ["C"]},
    {"keys": [["A"]]}, {"focus": 1},
])
def test_nonsense_is_refused(session: Session, message: Any) -> None:
    with pytest.raises(ValueError, match="not understood"):
        session.handle(message)


def test_the_last_picture_stays_where_there_is_no_other(
    session: Session, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = session.picture()
    broken = Mock(side_effect=UserError("render() raised OSError: no display"))
    monkeypatch.setattr(recorder.player, "screen", broken)
    assert session.picture() == before
    assert "no display" in session.shown()["told"]
