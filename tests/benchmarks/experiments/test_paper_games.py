"""The paper's games, on a stand-in: encounters in sequence, and a demonstration before play."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from matplotlib.figure import Figure

import benchmarks.worlds.encounters
from benchmarks.comparison import TICK_S
from benchmarks.experiments import paper_games
from benchmarks.results import Results
from rtagent.env.gameboy.paper_games import PaperGame
from rtagent.errors import UserError
from rtagent.storage.demonstration_file import DemonstrationWriter
from rtagent.virtual.simulation import SHORTEST_S
from tests.cartridges import BEGIN, import_stand_ins

BUTTONS = ["NOOP", "A", "B", "LEFT", "UP", "RIGHT"]
STRIKE, HIT, TAKE, LEAVE = "A", "B", "LEFT", "RIGHT"


@pytest.fixture
def state_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state directory with cartridges, and two encounters of each kind."""
    monkeypatch.setenv("RTAGENT_RUN__STATE_DIR", str(tmp_path))
    import_stand_ins(tmp_path / "roms")
    for game in ("battles", "catches", "tetris"):
        folder = tmp_path / "starts" / game
        folder.mkdir(parents=True)
        (folder / "1.keys").write_text(BEGIN)
        (folder / "2.keys").write_text(f"{BEGIN}7\n")
    return tmp_path


def opened(state_dir: Path, game: str) -> gymnasium.Env[Any, Any]:
    return benchmarks.worlds.encounters.make(
        paper_games.ENCOUNTERS[game], str(state_dir / "log"), roms=state_dir / "roms",
        start=state_dir / "starts" / game, actions=BUTTONS,
    )


def play(env: gymnasium.Env[Any, Any], *buttons: str) -> int:
    """Press and release each, until the episode is over; ticks that it took."""
    env.reset()
    pressed = [each for button in buttons for each in (button, button, "NOOP", "NOOP")]
    for ticks, button in enumerate(pressed, 1):
        if env.step(BUTTONS.index(button))[2]:
            return ticks
    raise AssertionError("it is not over")


def test_an_encounter_is_played_until_it_is_completed(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[Any] = []
    reset = PaperGame.reset
    monkeypatch.setattr(
        PaperGame, "reset",
        lambda game, **named: taken.append(named["options"]["start"]) or reset(game, **named),
    )
    env = opened(state_dir, "battles")
    lost, won = play(env, *[HIT] * 12), play(env, *[STRIKE] * 12)
    env.close()
    # A process that is started again goes on with the second.
    env = opened(state_dir, "battles")
    again = play(env, *[STRIKE] * 12)
    env.reset()
    env.close()
    assert taken == [0, 0, 1, 0]
    ends = benchmarks.worlds.encounters.completed(state_dir / "log")
    assert ends == [lost + won, lost + won + again]
    (state_dir / "log").write_text(f"{ends[0]}\n12")
    assert benchmarks.worlds.encounters.completed(state_dir / "log") == ends[:1]


def test_who_leaves_has_caught_nothing(state_dir: Path) -> None:
    env = opened(state_dir, "catches")
    left, caught = play(env, LEAVE), play(env, TAKE, LEAVE)
    env.close()
    assert benchmarks.worlds.encounters.completed(state_dir / "log") == [left + caught]


def test_encounters_are_counted_in_a_run(state_dir: Path) -> None:
    found = paper_games.run("catches", "staggered", 0.1, 98, 0, injected_ticks=1.0)
    assert found["score"] == len(found["completed_at_min"])
    assert found["score"] > 0, "an agent that acts at random wins now and then"
    assert 0.0 < found["completed_at_min"][0] < 0.1
    assert found["inaction_percent"] < 10.0


def test_tetris_is_learned_from_the_demonstration_before_it_is_played(state_dir: Path) -> None:
    with pytest.raises(UserError, match="demonstrations/tetris is missing"):
        paper_games.run("tetris", "staggered", 0.1, 1, 0, injected_ticks=1.0)
    writer = DemonstrationWriter("rtagent/Tetris-v0")
    rng = np.random.default_rng(0)
    for tick in range(1200):
        frame = rng.integers(0, 256, (84, 84), np.uint8)
        writer.add(frame, int(rng.integers(6)), float(tick % 7), 0, 0)
    folder = state_dir / "demonstrations" / "tetris"
    folder.mkdir(parents=True)
    writer.save(folder / "play.demo")
    found = paper_games.run("tetris", "sequential", 0.03, 7, 0, injected_ticks=2.0, updates=5)
    assert found["updates_before_play"] >= 5
    assert found["updates"] >= 1
    assert found["inaction_percent"] > 20.0


def test_no_update_on_the_demonstration_is_too_short_for_virtual_time() -> None:
    for updates in (5, paper_games.DEMONSTRATED_UPDATES):
        seconds, update_s = paper_games.shown_for(updates)
        assert update_s >= SHORTEST_S
        # Nothing passes after the last tick.
        assert (seconds - TICK_S) / update_s == pytest.approx(updates)


def test_what_was_not_imported_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RTAGENT_RUN__STATE_DIR", str(tmp_path))
    with pytest.raises(UserError, match=r"starts/battles is missing"):
        paper_games.run("battles", "staggered", 0.1, 1, 0)


@pytest.mark.parametrize("quick", [True, False])
def test_a_latency_that_is_not_computed_is_named(quick: bool) -> None:
    planned = paper_games.trials(quick)
    assert {each["game"] for each in planned} == set(paper_games.MEASURES)
    for sequential, staggered in zip(planned[::2], planned[1::2], strict=True):
        assert (sequential["contender"], staggered["contender"]) == ("sequential", "staggered")
    for each in planned:
        assert ("injected_ticks" in each) == (each["time"] == "virtual")
        if each["game"] == "tetris":
            assert each["time"] == "virtual"


def test_the_picture_has_a_row_for_each_game_that_was_run() -> None:
    figure = Figure()
    paper_games.draw(Results([
        {"params": {"game": "battles", "contender": name, "width": 1}, "seed": 0,
         "figures": {"score": 3, "inaction_percent": 0.0}} for name in paper_games.COLOURS
    ]), figure)
    left, right = figure.axes
    assert left.get_ylabel() == "battles: battles won"
    assert [len(each.containers) for each in (left, right)] == [2, 2]
