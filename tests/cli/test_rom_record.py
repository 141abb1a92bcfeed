"""`rtagent rom record`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rtagent.env.gameboy import starfall
from rtagent.env.gameboy.rom_library import import_rom
from rtagent.storage.demonstration_file import load_demonstration
from tests.cartridges import REWARDS, ROM, renamed
from tests.cli.conftest import Outcome, Run

ROMS = Path(__file__).parents[1] / "env" / "gameboy" / "roms"
STAND_IN = (ROMS / "standin" / "standin.gb").read_bytes()
KWARGS = 'env.kwargs={rewards="%s",actions=["NOOP","LEFT","START"]%s}'
Record = Callable[..., Outcome]


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The reward file, in a place of its own, and an empty state directory."""
    monkeypatch.setenv("RTAGENT_RUN__STATE_DIR", str(tmp_path / "state"))
    (tmp_path / "game.toml").write_text(REWARDS)
    return KWARGS % (tmp_path / "game.toml", "")


@pytest.fixture
def record(run: Run, settings: str, tmp_path: Path) -> Record:
    """Play a script."""
    (tmp_path / "walk.keys").write_text("2 START\n50 LEFT\n")

    def recorded(game: str, *options: str) -> Outcome:
        keys = ("--keys", str(tmp_path / "walk.keys"), "--set", settings)
        return run("rom", "record", game, *keys, *options)

    return recorded


def test_a_script_leaves_a_state_and_a_demonstration(record: Record, tmp_path: Path) -> None:
    states, file = tmp_path / "new" / "states", tmp_path / "a.demo"
    options = ("--states", str(states), "--demonstration", str(file))
    done = record(str(ROM), *options)
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        f"state: {states / 'starfall-0001.state'}", f"demonstration: {file}: 1 episode, 53 ticks"
    ]
    taken = load_demonstration(file)
    assert taken.actions.tolist() == [0, 2, 2] + [1] * 50
    assert not taken.rewards.any()
    assert "is there; --replace overwrites it" in record(str(ROM), *options).err
    again = json.loads(record(str(ROM), *options, "--replace", "--json").out)
    assert again == {
        "states": [str(states / "starfall-0002.state")],
        "demonstration": {"file": str(file), "episodes": 1, "ticks": 53},
    }
    # What was saved is where the next one begins.
    kwargs = KWARGS % (tmp_path / "game.toml", f',start="{states}"')
    assert record(str(ROM), *options, "--replace", "--set", kwargs).code == 0
    assert load_demonstration(file).rewards.any()


def test_an_imported_cartridge_is_found_by_its_name(record: Record, tmp_path: Path) -> None:
    import_rom(tmp_path / "state" / "roms", ROM, "mine")
    done = record("mine", "--states", str(tmp_path), "--json")
    assert json.loads(done.out) == {
        "states": [str(tmp_path / "mine-0001.state")], "demonstration": None
    }


def test_an_environment_is_found_by_its_id(run: Run, tmp_path: Path) -> None:
    (tmp_path / "walk.keys").write_text("5 LEFT")
    options = ("--keys", str(tmp_path / "walk.keys"), "--demonstration", str(tmp_path / "a.demo"))
    assert run("rom", "record", *options).code == 0
    assert load_demonstration(tmp_path / "a.demo").outline.environment == "rtagent/Starfall-v0"
    assert run("rom", "record", "rtagent/Duel-v0", *options, "--replace").code == 0
    assert load_demonstration(tmp_path / "a.demo").outline.environment == "rtagent/Duel-v0"


def test_what_an_environment_prints_is_not_in_the_document(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Loud(starfall.Starfall):
        def reset(self, **options: Any) -> Any:
            print("reset")
            return super().reset(**options)

        def step(self, action: Any) -> Any:
            print("step")
            return super().step(action)

        def close(self) -> None:
            print("close")
            super().close()

    monkeypatch.setattr(starfall, "Starfall", Loud)
    (tmp_path / "walk.keys").write_text("5 LEFT")
    options = ("--keys", str(tmp_path / "walk.keys"), "--demonstration", str(tmp_path / "a.demo"))
    done = run("rom", "record", *options, "--json")
    assert json.loads(done.out)["demonstration"]["ticks"] == 6
    assert set(done.err.split()) == {"reset", "step", "close"}


def test_an_encounter_of_a_papers_game_is_made_from_its_title(
    run: Run, settings: str, tmp_path: Path
) -> None:
    (tmp_path / "red.gb").write_bytes(renamed(STAND_IN, "POKEMON RED"))
    import_rom(tmp_path / "state" / "roms", tmp_path / "red.gb", "pokemon-red")
    (tmp_path / "walk.keys").write_text("2 START\n5")
    game = ("rom", "record", "rtagent/PokemonRedBattle-v0", "--keys", str(tmp_path / "walk.keys"))
    states, file = tmp_path / "battles", tmp_path / "a.demo"
    demonstration = ("--demonstration", str(file), "--set")
    buttons = 'actions=["NOOP","START"]'
    refused = run(*game, *demonstration, f"env.kwargs={{{buttons}}}")
    assert "the episode is over before it begins" in refused.err
    assert run(*game, "--states", str(states)).code == 0
    assert [each.name for each in states.iterdir()] == ["PokemonRedBattle-v0-0001.state"]
    done = run(*game, *demonstration, f'env.kwargs={{{buttons},start="{states}"}}')
    assert (done.code, done.err) == (0, "")
    assert len(load_demonstration(file).flags) == 8


def test_too_long_a_script_is_refused(record: Record, tmp_path: Path) -> None:
    (tmp_path / "walk.keys").write_text("108001")
    refused = record(str(ROM), "--demonstration", str(tmp_path / "a.demo"))
    assert "108001 frames: expected 1 to 108000" in refused.err


def test_what_a_script_recorded_before_its_end_is_kept(
    record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rtagent.storage.demonstration_file.LARGEST", 2 << 20)
    (tmp_path / "walk.keys").write_text("300 LEFT")
    refused = record(str(ROM), "--demonstration", str(tmp_path / "a.demo"))
    assert "a demonstration may have 2 MiB; " in refused.err
    assert 10 < len(load_demonstration(tmp_path / "a.demo").actions) < 300


@pytest.mark.process
def test_it_prints_its_address_and_ends_well_on_ctrl_c(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rtagent", "rom", "record", "--demonstration"]
    with subprocess.Popen(
        [*command, str(tmp_path / "a.demo")],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:
        line = process.stdout.readline()
        assert line.startswith("rtagent rom record: http://127.0.0.1:")
        assert len(line.split("#")[1].strip()) == 43
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 0
        assert process.stdout.read() == "demonstration: nothing was recorded\n"
        assert process.stderr.read() == ""


def test_states_of_a_game_need_no_reward_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "walk.keys").write_text("2 START\n")
    game = ("rom", "record", str(ROM), "--keys", str(tmp_path / "walk.keys"))
    done = run(*game, "--states", str(tmp_path / "states"))
    assert (done.code, done.err) == (0, "")
    assert (tmp_path / "states" / "starfall-0001.state").is_file()
    refused = run(*game, "--demonstration", str(tmp_path / "a.demo"))
    assert refused.code == 2
    assert "a demonstration has rewards: give a reward file" in refused.err
