"""Episodes on a tape, and free play without one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest

from rtagent.clock import VirtualClock
from rtagent.config import EnvConfig
from rtagent.env.adapter import open_environment
from rtagent.errors import UserError
from rtagent.memory.ledger import TERMINATED, TRUNCATED
from rtagent.recording.player import Player, open_player
from rtagent.recording.recorder import Recorder
from rtagent.recording.session import Session
from rtagent.storage.demonstration_file import Demonstration, load_demonstration
from tests.cartridges import REWARDS
from tests.recording.conftest import LEFT, NOOP, PLAYING, RIGHT_A, START, TITLE, Config, Open


def steps(player: Player, *turns: tuple[int, int]) -> None:
    for ticks, action in turns:
        for _ in range(ticks):
            player.step(action)


def recorded(player: Player, path: Path, *turns: tuple[int, int]) -> Demonstration:
    recorder = Recorder(player, "x", None, path)
    recorder.start()
    steps(player, *turns)
    recorder.stop()
    return load_demonstration(path)


def replayed(config: EnvConfig, demonstration: Demonstration) -> list[tuple[bytes, float, int]]:
    """Frames, rewards and flags of the same actions in a fresh environment."""
    told, episode, seed = [], -1, 1
    with closing(open_environment(config)) as adapter:
        for number, action in zip(demonstration.episodes, demonstration.actions, strict=True):
            if number != episode:
                told.append((adapter.reset(seed).tobytes(), 0.0, 0))
                episode, seed = number, None
                continue
            step = adapter.step(action)
            flags = TERMINATED * step.terminated | TRUNCATED * step.truncated
            told.append((step.frame.tobytes(), step.reward, flags))
    return told


def test_a_demonstration_is_what_its_actions_give_again(
    play: Open, config: Config, tmp_path: Path
) -> None:
    start = tmp_path / "begin.keys"
    start.write_text("2 START\n2")
    player = play(start=str(start), max_ticks=1000)
    taken = recorded(player, tmp_path / "a.demo", (900, LEFT), (600, RIGHT_A))
    player.close()
    # A game that is lost, one that is cut, and one that is left.
    assert set(taken.flags.tolist()) == {0, TERMINATED, TRUNCATED}
    assert taken.flags[-1] == TRUNCATED
    assert -1.0 in taken.rewards
    assert taken.frames.shape == (len(taken.rewards), 84, 84)
    again = replayed(config(start=str(start), max_ticks=1000), taken)
    assert [frame for frame, _, _ in again] == [frame.tobytes() for frame in taken.frames]
    np.testing.assert_array_equal([reward for _, reward, _ in again], taken.rewards)
    assert [flags for _, _, flags in again][:-1] == taken.flags[:-1].tolist()
    assert taken.outline.environment == "gameboy"
    assert taken.outline.action_meanings == ("NOOP", "LEFT", "RIGHT", "START", "RIGHT+A")


def test_without_a_tape_the_game_runs_on(play: Open) -> None:
    player = play(max_ticks=10)
    steps(player, (9, NOOP))
    assert player.ended == ""
    steps(player, (3, NOOP))
    assert (player.ticks, player.ended) == (12, "truncated")
    player.restart()
    assert (player.ticks, player.ended, player.total) == (0, "", 0.0)


def test_reward_and_variables_are_told(play: Open) -> None:
    player = play()
    assert player.values["screen"] == int(TITLE)
    steps(player, (2, START))
    while not player.ended:
        player.step(LEFT)
    assert player.ended == "over"
    player.step(NOOP)
    assert player.last_reward == -1.0
    assert player.total == player.values["score"] - 3
    assert player.screen().shape == (144, 160, 3)


def test_from_where_an_episode_is_over_one_can_play_but_not_record(
    play: Open, rewards: Path, tmp_path: Path
) -> None:
    rewards.write_text(REWARDS.replace("value = 2", "value = 0"))
    player = play(demonstrates=False, actions=None)
    assert player.action_meanings.count("NOOP") == 1
    steps(player, (1, player.buttons.nearest([])))
    assert player.ended == "over"
    with pytest.raises(UserError, match=r"over before it begins: done\.over holds at the start"):
        Recorder(player, "x", None, tmp_path / "x.demo").start()
    assert player.tape is None
    steps(player, (2, player.buttons.nearest(["START"])), (40, player.buttons.nearest([])))
    assert (player.ended, str(player.values["screen"])) == ("", PLAYING)
    saved = tmp_path / "states" / "playing.state"
    saved.parent.mkdir()
    player.save_state(saved)
    assert len(recorded(play(start=str(saved.parent)), tmp_path / "x.demo", (5, NOOP)).flags) == 6


def test_a_state_is_a_start_with_the_picture_that_follows(play: Open, tmp_path: Path) -> None:
    player = play()
    steps(player, (2, START), (50, RIGHT_A))
    player.save_state(tmp_path / "a.state")
    steps(player, (1, NOOP))
    expected = player.screen().copy()
    again = play(start=str(tmp_path / "a.state"))
    np.testing.assert_array_equal(again.screen(), expected)
    assert str(again.values["screen"]) == PLAYING


def test_a_new_episode_begins_at_any_of_the_starts(play: Open, tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    starts.mkdir()
    (starts / "a.keys").write_text("20")
    (starts / "b.keys").write_text("2 START\n20")
    player = play(start=str(starts))
    seen = set()
    for _ in range(20):
        player.restart()
        seen.add(str(player.values["screen"]))
    assert seen == {TITLE, PLAYING}


def test_a_demonstration_has_the_environments_own_actions(play: Open) -> None:
    assert len(play(actions=None).action_meanings) == 7
    assert play(demonstrates=False).action_meanings[-1] == "RIGHT+A"


def test_a_state_that_cannot_be_written_is_one_line(play: Open, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot write the state .*No such file"):
        play().save_state(tmp_path / "none" / "a.state")


def test_the_built_in_games_have_demonstrations_alone(tmp_path: Path) -> None:
    starfall = EnvConfig(id="rtagent/Starfall-v0")
    with closing(open_player(starfall, 1, demonstrates=True)) as player:
        taken = recorded(player, tmp_path / "a.demo", (20, 1))
        assert taken.action_meanings == ("NOOP", "LEFT", "RIGHT")
        with pytest.raises(UserError, match=r"--states: rtagent/Starfall-v0"):
            Recorder(player, "x", tmp_path, None)


class Pad(gym.Env[Any, Any]):
    """A user's environment with a Game Boy's buttons, whose `info` is None.

    Args:
        shape: of the picture that it renders, in which each number is 9. If None, it renders none.
        seen: shape of its observations.
        broken: whether its step fails.
        ended_by: how an episode ends, in its words. If None, it has none.
    """

    action_space = gym.spaces.Discrete(2)
    metadata = MappingProxyType({"render_fps": 20})
    render_mode = "rgb_array"

    def __init__(
        self, shape: tuple[int, ...] | None = None, seen: tuple[int, ...] = (4,),
        broken: bool = False, render_mode: str = "", ended_by: str | None = None,
    ) -> None:
        self.picture = None if shape is None else np.full(shape, 9, np.uint8)
        self.broken, self.ended_by = broken, ended_by
        kind = (0, 255, seen, np.uint8) if len(seen) > 1 else (-1.0, 1.0, seen, np.float32)
        self.observation_space = gym.spaces.Box(*kind)

    def get_action_meanings(self) -> list[str]:
        return ["NOOP", "LEFT"]

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self.observation_space.low, None

    def step(self, action: Any) -> Any:
        if self.broken:
            raise RuntimeError("no power")
        info = None if self.ended_by is None else {"ended_by": self.ended_by}
        return self.observation_space.low, 1.0, True, False, info

    def render(self) -> Any:
        return self.picture


@contextmanager
def pad(**kwargs: Any) -> Iterator[Player]:
    world = EnvConfig(id=f"{__name__}:Pad", kwargs=kwargs)
    with closing(open_player(world, 1, demonstrates=True)) as player:
        yield player


@pytest.mark.parametrize(("shape", "seen"), [
    ((5, 6), (4,)), ((5, 6, 1), (4,)), ((5, 6, 4), (4,)), (None, (84, 84, 1)),
])
def test_a_users_picture_is_shown_in_colours(
    shape: tuple[int, ...] | None, seen: tuple[int, ...]
) -> None:
    with pad(shape=shape, seen=seen) as player:
        screen = player.screen()
        assert screen.shape == ((5, 6, 3) if shape is not None else (84, 84, 3))
        assert (screen == (9 if shape is not None else 0)).all()
        Session(Recorder(player, "x", None, None), VirtualClock()).picture()


@pytest.mark.parametrize("shape", [(0, 9, 3), (3, 40, 40), (9,), (2, 9, 9, 3)])
def test_what_a_user_renders_may_be_no_picture(shape: tuple[int, ...]) -> None:
    with pad(shape=shape) as player, pytest.raises(UserError, match="is no picture"):
        player.screen()


def test_a_user_may_tell_and_show_nothing() -> None:
    with pad() as player:
        player.step(1)
        assert (player.values, player.ended, player.total) == ({}, "terminated", 1.0)
        with pytest.raises(UserError, match=r"Pad shows nothing.*--keys"):
            player.screen()


def test_an_end_without_a_name_is_an_end(tmp_path: Path) -> None:
    # The demonstration went on after it, and could not be written.
    with pad(ended_by="") as player:
        taken = recorded(player, tmp_path / "a.demo", (2, 1))
    assert taken.flags.tolist() == [0, TERMINATED, 0, TERMINATED]


class WordlessPad(Pad):
    def get_action_meanings(self) -> list[str]:
        raise RuntimeError("not yet")


def test_what_a_users_declarations_raise_is_one_line() -> None:
    with pytest.raises(UserError, match=r"^env\.id = .*WordlessPad: RuntimeError: not yet"):
        open_player(EnvConfig(id=f"{__name__}:WordlessPad"), 1, demonstrates=True)


def test_what_a_users_step_raises_is_one_line() -> None:
    with pad(broken=True) as player, pytest.raises(UserError, match=r"RuntimeError: no power"):
        player.step(1)


class PlainPad(Pad):
    metadata: ClassVar[dict[str, Any]] = {"render_fps": 20}

    def __init__(self) -> None:
        super().__init__(seen=(84, 84, 1))


gym.register("PlainPad-v0", entry_point=PlainPad)


class BarePad(gym.Env[Any, Any]):
    observation_space = gym.spaces.Box(0, 255, (84, 84, 1), np.uint8)
    action_space, metadata = Pad.action_space, Pad.metadata
    get_action_meanings, reset, step = Pad.get_action_meanings, Pad.reset, Pad.step
    broken, ended_by = False, None


@pytest.mark.parametrize("name", [f"{__name__}:PlainPad", "PlainPad-v0", f"{__name__}:BarePad"])
def test_a_users_environment_need_not_know_of_a_render_mode(name: str) -> None:
    player = open_player(EnvConfig(id=name), 1, demonstrates=True)
    assert player.screen().shape == (84, 84, 3)
    player.close()


@pytest.mark.parametrize("world", ["CartPole-v1", "Pendulum-v1"])
def test_what_has_no_buttons_is_refused(world: str) -> None:
    with pytest.raises(UserError, match=rf"env\.id = {world}: its actions are no buttons"):
        open_player(EnvConfig(id=world), 1, demonstrates=True)
