"""The paper's games on a stand-in that has their variables at their addresses."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import gymnasium as gym
import pytest

from rtagent.config import EnvConfig
from rtagent.env.gameboy.paper_games import REWARD_FILES
from rtagent.env.gameboy.rewards import load_rules
from rtagent.env.gameboy.roms.cartridge import build_cartridge
from rtagent.env.making import make
from rtagent.env.registry import PAPER_GAMES, register
from rtagent.errors import UserError
from tests.cartridges import BEGIN, STAND_IN, import_stand_ins
from tests.installed import needs

BUTTONS = ["NOOP", "A", "B", "LEFT", "UP", "RIGHT", "DOWN", "SELECT", "START"]


@pytest.fixture(scope="module")
def roms(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library of stand-ins, and the keys that begin a battle and a round."""
    library = tmp_path_factory.mktemp("library") / "roms"
    import_stand_ins(library)
    (library / "begin.keys").write_text(BEGIN)
    return library


@contextmanager
def opened(name: str, library: Path, **kwargs: object) -> Iterator[gym.Env]:
    start = str(library / "begin.keys")
    given = {"roms": str(library), "start": start, "actions": BUTTONS, **kwargs}
    env = make(EnvConfig(id=name, kwargs=given))
    try:
        env.reset(seed=0)
        yield env
    finally:
        env.close()


def tap(env: gym.Env, *buttons: str) -> list[tuple[float, bool, dict]]:
    """Press and release each; the sum of the rewards, whether it is over, and the variables."""
    told = []
    for button in buttons:
        total = 0.0
        for action in [BUTTONS.index(button)] * 2 + [0] * 2:
            _, reward, terminated, truncated, info = env.step(action)
            assert not truncated
            total += float(reward)
            if terminated:
                break
        told.append((total, terminated, info))
    return told


def rewards_of(told: list[tuple[float, bool, dict]]) -> list[float]:
    return [each[0] for each in told]


@needs(shutil.which("sdcc"), "SDCC")
def test_rebuilding_gives_the_committed_stand_in() -> None:
    rebuilt = build_cartridge(STAND_IN, "STANDIN", ("main",), {})
    assert rebuilt == (STAND_IN / "standin.gb").read_bytes()


@pytest.mark.parametrize("name", sorted({rewards for _, rewards in PAPER_GAMES.values()}))
def test_every_built_in_reward_file_is_good(name: str) -> None:
    assert load_rules(REWARD_FILES / f"{name}.toml").done


def test_yellow_lies_one_address_lower() -> None:
    for kind in ("battle", "catch"):
        red, yellow = (
            load_rules(REWARD_FILES / f"pokemon-{game}-{kind}.toml")
            for game in ("red-blue", "yellow")
        )
        assert red.reward == yellow.reward
        assert red.done == yellow.done
        for name, variable in red.variables.items():
            assert yellow.variables[name].address == variable.address - 1


@pytest.mark.parametrize("colour", ["Red", "Blue", "Yellow"])
def test_a_battle_is_won_and_lost_one_by_one(roms: Path, colour: str) -> None:
    name = f"rtagent/Pokemon{colour}Battle-v0"
    with opened(name, roms) as env:
        # Two blows each: 150, 50, 0.
        won = tap(env, *["A"] * 12)
        assert rewards_of(won) == [0.0, 1.0] * 6
        assert [each[1] for each in won] == [False] * 11 + [True]
        assert won[-1][2]["ended_by"] == "won"
        assert won[0][2]["opponent_hp"] == (50, *[150] * 5)
        env.reset()
        lost = tap(env, "B", "A", "A", *["B"] * 11)
        assert rewards_of(lost) == [0.0, 0.0, 1.0, -1.0] + [0.0, -1.0] * 5
        assert lost[-1][2]["ended_by"] == "lost"


@pytest.mark.parametrize("colour", ["Red", "Blue", "Yellow"])
def test_a_catch_counts_once_and_leaving_without_costs(roms: Path, colour: str) -> None:
    with opened(f"rtagent/Pokemon{colour}Catch-v0", roms) as env:
        fled = tap(env, "A", "RIGHT")
        assert rewards_of(fled) == [0.0, -1.0]
        assert (fled[-1][1], fled[-1][2]["ended_by"]) == (True, "left")
        for keys, expected in (
            (("LEFT", "RIGHT"), [1.0, 0.0]),
            (("UP", "RIGHT"), [1.0, 0.0]),
            (("LEFT", "UP", "RIGHT"), [1.0, 0.0, 0.0]),
        ):
            env.reset()
            told = tap(env, *keys)
            assert rewards_of(told) == expected
            assert told[-1][1]


@pytest.mark.parametrize("backend", ["gambatte", "pyboy"])
def test_tetris_gives_its_score_until_it_is_over(roms: Path, backend: str) -> None:
    with opened("rtagent/Tetris-v0", roms, backend=backend) as env:
        lines = tap(env, *["DOWN"] * 4)
        assert rewards_of(lines) == [40.0] * 4
        assert lines[-1][2]["score"] == 160
        over = tap(env, "SELECT")
        assert over[0][1:] == (True, {"score": 160, "state": 13, "level": 0,
                                      "ended_by": "game_over"})


def test_what_is_missing_is_one_line(roms: Path, tmp_path: Path) -> None:
    register()
    told = r"the ROM tetris is not in .*rtagent rom import PATH; env\.kwargs\.roms names another"
    with pytest.raises(UserError, match=told):
        make(EnvConfig(id="rtagent/Tetris-v0", kwargs={"roms": str(tmp_path)}))
    with pytest.raises(UserError, match=r"done\.game_over holds at the start; give a state"):
        make(EnvConfig(id="rtagent/Tetris-v0", kwargs={"roms": str(roms)}))
    damaged = tmp_path / "roms"
    shutil.copytree(roms, damaged)
    path = next(damaged.glob("tetris.*.gb"))
    path.write_bytes(path.read_bytes()[:-1] + b"\7")
    with pytest.raises(UserError, match="sha1 expected"):
        make(EnvConfig(id="rtagent/Tetris-v0", kwargs={"roms": str(damaged)}))


def test_the_cartridge_is_looked_for_in_the_state_directory(
    roms: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RTAGENT_RUN__STATE_DIR", str(roms.parent))
    with opened("rtagent/Tetris-v0", roms, roms="") as env:
        assert env.unwrapped.noop_action == 0
