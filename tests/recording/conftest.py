"""Starfall as a user's cartridge, ready to be played."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rtagent.clock import VirtualClock
from rtagent.config import EnvConfig
from rtagent.recording.player import Player, open_player
from rtagent.recording.recorder import Recorder
from rtagent.recording.session import Session
from tests.cartridges import REWARDS, ROM
from tests.service.dashboard.conftest import blank, browser

__all__ = ["blank", "browser"]

ACTIONS = ["NOOP", "LEFT", "RIGHT", "START", "RIGHT+A"]
NOOP, LEFT, RIGHT, START, RIGHT_A = range(5)
TITLE, PLAYING = "0", "1"


@pytest.fixture
def rewards(tmp_path: Path) -> Path:
    path = tmp_path / "starfall.toml"
    path.write_text(REWARDS)
    return path


Config = Callable[..., EnvConfig]
Open = Callable[..., Player]


@pytest.fixture
def config(rewards: Path) -> Config:
    """Makes the environment's configuration, with other arguments."""

    def configured(**kwargs: Any) -> EnvConfig:
        given = {"rom": str(ROM), "rewards": str(rewards), "actions": ACTIONS, **kwargs}
        given = {name: value for name, value in given.items() if value is not None}
        return EnvConfig(id="gameboy", kwargs=given)

    return configured


@pytest.fixture
def play(config: Config) -> Iterator[Open]:
    """Opens the game, after closing the previous one, for a process runs one."""
    players: list[Player] = []

    def opened(demonstrates: bool = True, **kwargs: Any) -> Player:
        while players:
            players.pop().close()
        players.append(open_player(config(**kwargs), 1, demonstrates=demonstrates))
        return players[-1]

    yield opened
    for player in players:
        player.close()


@pytest.fixture
def recorder(play: Open, tmp_path: Path) -> Recorder:
    """Saves states and a demonstration."""
    (tmp_path / "states").mkdir()
    return Recorder(play(), "starfall", tmp_path / "states", tmp_path / "fight.demo")


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(100.0)


@pytest.fixture
def session(recorder: Recorder, clock: VirtualClock) -> Session:
    return Session(recorder, clock)
