"""Any Game Boy game, with Starfall as the game that a user brings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from rtagent.config import EnvConfig
from rtagent.env.adapter import open_environment
from rtagent.env.declarations import declared
from rtagent.env.gameboy.game import Game
from rtagent.env.gameboy.rom_file import read_rom
from rtagent.errors import UserError
from tests.cartridges import REWARDS, ROM
from tests.refused import one_line

ACTIONS = ["NOOP", "LEFT", "RIGHT", "START", "A+RIGHT"]
NOOP, START = 0, 3
PLAYING = 1


@pytest.fixture(scope="module")
def rewards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("game") / "starfall.toml"
    path.write_text(REWARDS)
    return path


@pytest.fixture
def game(rewards: Path) -> Iterator[Game]:
    env = Game(ROM, rewards, actions=ACTIONS, max_ticks=2000, render_mode="rgb_array")
    yield env
    env.close()


def play(game: Game, *turns: tuple[int, int]) -> list[tuple]:
    return [game.step(action) for frames, action in turns for _ in range(frames)]


def test_an_episode_gives_what_the_reward_file_says(game: Game) -> None:
    frame, info = game.reset(seed=1)
    assert frame.shape == (84, 84)
    assert frame.dtype == np.uint8
    assert info["screen"] == 0
    steps = play(game, (2, START), (20, NOOP))
    assert steps[-1][4]["screen"] == PLAYING
    # Starting sets the lives, which is no loss; then nobody catches the stars.
    assert all(step[1] == 0 for step in steps)
    total, last = 0.0, steps[-1]
    while not (last[2] or last[3]):
        last = game.step(NOOP)
        total += last[1]
    assert (last[2], last[3], last[4]["ended_by"]) == (True, False, "over")
    assert total == last[4]["score"] - 3
    assert last[4]["lives"] == 0


def test_an_episode_is_truncated_and_the_next_one_is_the_same(game: Game) -> None:
    def first_frames() -> tuple[np.ndarray, list]:
        frame, _ = game.reset()
        return frame, play(game, (2, START), (40, 4))

    one, other = first_frames(), first_frames()
    np.testing.assert_equal(one, other)
    game.reset()
    steps = play(game, (2000, NOOP))
    assert [step[3] for step in steps].count(True) == 1
    assert steps[-1][3]
    assert not steps[-1][2]
    assert game.render().shape == (144, 160, 3)


def test_what_is_drawn_into_a_picture_is_not_in_the_next_episode(game: Game) -> None:
    first, _ = game.reset()
    game.render()[:] = 0
    np.testing.assert_array_equal(game.reset()[0], first)


def test_a_game_whose_episodes_never_end_says_so_once(rewards: Path, tmp_path: Path) -> None:
    endless = tmp_path / "endless.toml"
    endless.write_text(REWARDS.partition("[done]")[0])
    for file, ticks, told in ((endless, 0, 1), (endless, 100, 0), (rewards, 0, 0)):
        game = Game(ROM, file, max_ticks=ticks, backend="pyboy")
        news = [*game.take_news(), *game.take_news()]
        game.close()
        assert len(news) == told
        assert all("no episode ever ends" in line for line in news)


def test_a_start_can_be_saved_and_used(game: Game, rewards: Path, tmp_path: Path) -> None:
    game.reset()
    play(game, (2, START), (30, NOOP))
    state = tmp_path / "playing.state"
    game.save_state(state)
    expected = play(game, (10, NOOP))[-1]
    game.close()
    again = Game(ROM, rewards, start=state, actions=ACTIONS)
    _, info = again.reset()
    assert info["screen"] == PLAYING
    assert play(again, (9, NOOP))[-1][4] == expected[4]
    again.close()
    wrong = {b"": "size is wrong", b"\x1f\x8bxx": "damaged", b"xx": "no state"}
    for content, reason in wrong.items():
        state.write_bytes(content)
        with pytest.raises(UserError, match=reason):
            Game(ROM, rewards, start=state)
    with pytest.raises(UserError, match="cannot read the start"):
        Game(ROM, rewards, start=tmp_path / "none.state")


def test_keys_can_lead_to_the_start(rewards: Path, tmp_path: Path) -> None:
    keys = tmp_path / "play.keys"
    keys.write_text("2 START\n10")
    playing = Game(ROM, rewards, start=keys)
    _, info = playing.reset()
    assert info["screen"] == PLAYING
    check_env(playing, skip_render_check=True, skip_close_check=True)
    playing.close()


def test_a_folder_of_starts_is_drawn_from_by_the_seed(rewards: Path, tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    starts.mkdir()
    with pytest.raises(UserError, match="0 starts in"):
        Game(ROM, rewards, start=starts)
    (starts / ".hidden").write_text("x")
    (starts / "a.keys").write_text("20")
    (starts / "b.keys").write_text("2 START")
    playing = Game(ROM, rewards, start=starts)
    playing.reset(options={"start": 1})
    play(playing, (10, 0))
    playing.save_state(starts / "c.state")
    playing.close()
    drawn = Game(ROM, rewards, start=starts)

    def places(seed: int) -> list[tuple[int, int]]:
        drawn.reset(seed=seed)
        infos = [drawn.reset()[1] for _ in range(30)]
        return [(info["screen"], info["lives"]) for info in infos]

    first = places(1)
    assert len(set(first)) == 2
    assert first == places(1) != places(2)
    asked = [drawn.reset(options={"start": number})[1]["screen"] for number in (1, 0, 2, 0)]
    assert [screen == PLAYING for screen in asked] == [True, False, True, False]
    with pytest.raises(UserError, match="start = 3: expected 0 to 2"):
        drawn.reset(options={"start": 3})
    drawn.close()
    (starts / "d.state").write_bytes(b"xx")
    with pytest.raises(UserError, match=r"d\.state is no state of this cartridge"):
        Game(ROM, rewards, start=starts)


def test_no_action_is_called_a_noop_where_each_holds_a_button(game: Game, rewards: Path) -> None:
    assert declared(game, "noop_action") is not None
    game.close()
    with closing(Game(ROM, rewards, actions=["A", "B"])) as pressing:
        assert declared(pressing, "noop_action") is None


def test_it_is_an_environment_by_its_id(rewards: Path) -> None:
    config = EnvConfig(id="gameboy", kwargs={"rom": str(ROM), "rewards": str(rewards)})
    with closing(open_environment(config)) as adapter:
        assert adapter.action_meanings == ("A", "B", "LEFT", "UP", "RIGHT", "DOWN", "NOOP")
        assert adapter.noop_action == 6
        assert adapter.rate_hz == pytest.approx(59.7275)
        adapter.reset(seed=0)
        assert adapter.step(6).reward == 0.0


@pytest.mark.parametrize(
    ("kwargs", "reason"),
    [
        ({"rom": ""}, "env.kwargs.rom = ''"),
        ({"rewards": 3}, "env.kwargs.rewards = 3"),
        ({"rom": "/none.gb"}, "cannot read the cartridge /none.gb"),
        ({"rom": __file__}, "is no Game Boy cartridge"),
        ({"title": "TETRIS"}, "is called 'STARFALL', expected 'TETRIS'"),
        ({"sha1": "0" * 40}, "sha1 expected 0000"),
        ({"actions": ["A"]}, "env.kwargs.actions"),
        ({"actions": "AB"}, "env.kwargs.actions"),
        ({"actions": ["A", "FIRE"]}, "'FIRE' is no action"),
        ({"actions": ["A+B", "B+A"]}, "two of them are the same"),
        ({"max_ticks": -1}, "env.kwargs.max_ticks = -1"),
        ({"boot_frames": 1.5}, "env.kwargs.boot_frames = 1.5"),
        ({"backend": "mgba"}, "env.kwargs.backend = 'mgba'"),
        ({"speed": 3}, "speed"),
    ],
)
def test_a_wrong_argument_is_one_line(rewards: Path, kwargs: dict, reason: str) -> None:
    given = {"rom": str(ROM), "rewards": str(rewards), **kwargs}
    with one_line(re.escape(reason)):
        open_environment(EnvConfig(id="gameboy", kwargs=given))


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("value = 2", "value = 0", "done.over holds at the start"),
        ("0xC004", "0xFF00", "variables.lives of the reward file lies at 0xff00"),
    ],
)
def test_a_reward_file_that_does_not_fit_is_one_line(
    tmp_path: Path, old: str, new: str, reason: str
) -> None:
    path = tmp_path / "rewards.toml"
    path.write_text(REWARDS.replace(old, new))
    with pytest.raises(UserError, match=reason):
        Game(ROM, path)
    # The refused game has closed its machine.
    path.write_text(REWARDS)
    Game(ROM, path, sha1=read_rom(ROM).sha1.upper(), title="STARFALL").close()
