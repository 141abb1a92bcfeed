"""`rtagent rom record`."""

from __future__ import annotations

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
from tests.cartridges import REWARDS, ROM, STAND_IN, renamed
from tests.cli.conftest import Outcome, Run

WALK = "2 START\n50 LEFT\n"
Record = Callable[..., Outcome]


@pytest.fixture
def record(run: Run, tmp_path: Path, state_dir: Path) -> Record:
    """Plays a script of keys."""
    keys = tmp_path / "walk.keys"

    def recorded(script: str, *options: object) -> Outcome:
        keys.write_text(script)
        return run("rom", "record", "--keys", str(keys), *map(str, options))

    return recorded


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where a demonstration is written."""
    return tmp_path / "a.demo"


@pytest.fixture
def rewarded(tmp_path: Path) -> list[str]:
    """The options for Starfall's cartridge with its rewards and three of its actions."""
    rewards = tmp_path / "game.toml"
    rewards.write_text(REWARDS)
    actions = 'actions=["NOOP","LEFT","START"]'
    return ["--set", f'env.kwargs={{rewards="{rewards}",{actions}}}']


def test_a_script_leaves_a_state_and_a_demonstration(
    record: Record, rewarded: list[str], file: Path, tmp_path: Path
) -> None:
    states = tmp_path / "new" / "states"
    game = (WALK, ROM, *rewarded, "--states", states, "--demonstration", file)
    done = record(*game)
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        f"state: {states / 'starfall-0001.state'}", f"demonstration: {file}: 1 episode, 53 ticks"
    ]
    taken = load_demonstration(file)
    assert taken.actions.tolist() == [0, 2, 2] + [1] * 50
    assert not taken.rewards.any()
    assert "is there; --replace overwrites it" in record(*game).err
    again = record(*game, "--replace", "--json").document()
    assert again == {
        "states": [str(states / "starfall-0002.state")],
        "demonstration": {"file": str(file), "episodes": 1, "ticks": 53},
    }
    # What was saved is where the next one begins.
    assert record(*game, "--replace", "--set", f'env.kwargs.start="{states}"').code == 0
    assert load_demonstration(file).rewards.any()


def test_an_imported_cartridge_is_found_by_its_name(
    record: Record, state_dir: Path, tmp_path: Path
) -> None:
    import_rom(state_dir / "roms", ROM, "mine")
    done = record(WALK, "mine", "--states", tmp_path, "--json")
    assert done.document() == {
        "states": [str(tmp_path / "mine-0001.state")], "demonstration": None
    }


def test_an_environment_is_found_by_its_id(record: Record, file: Path) -> None:
    assert record("5 LEFT", "--demonstration", file).code == 0
    assert load_demonstration(file).outline.environment == "rtagent/Starfall-v0"
    duel = record("5 LEFT", "rtagent/Duel-v0", "--demonstration", file, "--replace")
    assert duel.code == 0
    assert load_demonstration(file).outline.environment == "rtagent/Duel-v0"


def test_what_an_environment_prints_is_not_in_the_document(
    record: Record, file: Path, monkeypatch: pytest.MonkeyPatch
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
    done = record("5 LEFT", "--demonstration", file, "--json")
    assert done.document()["demonstration"]["ticks"] == 6
    assert set(done.err.split()) == {"reset", "step", "close"}


def test_an_encounter_of_a_papers_game_is_made_from_its_title(
    record: Record, file: Path, state_dir: Path, tmp_path: Path
) -> None:
    cartridge, states = tmp_path / "red.gb", tmp_path / "battles"
    cartridge.write_bytes(renamed((STAND_IN / "standin.gb").read_bytes(), "POKEMON RED"))
    import_rom(state_dir / "roms", cartridge, "pokemon-red")
    game = ("2 START\n5", "rtagent/PokemonRedBattle-v0")
    demonstration = ("--demonstration", file, "--set", 'env.kwargs.actions=["NOOP","START"]')
    assert "the episode is over before it begins" in record(*game, *demonstration).err
    assert record(*game, "--states", states).code == 0
    assert [each.name for each in states.iterdir()] == ["PokemonRedBattle-v0-0001.state"]
    done = record(*game, *demonstration, "--set", f'env.kwargs.start="{states}"')
    assert (done.code, done.err) == (0, "")
    assert len(load_demonstration(file).flags) == 8


def test_too_long_a_script_is_refused(record: Record, rewarded: list[str], file: Path) -> None:
    refused = record("108001", ROM, *rewarded, "--demonstration", file)
    assert "108001 frames: expected 1 to 108000" in refused.err


def test_what_a_script_recorded_before_its_end_is_kept(
    record: Record, rewarded: list[str], file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rtagent.storage.demonstration_file.LARGEST", 2 << 20)
    refused = record("300 LEFT", ROM, *rewarded, "--demonstration", file)
    assert "a demonstration may have 2 MiB; " in refused.err
    assert 10 < len(load_demonstration(file).actions) < 300


@pytest.mark.process
def test_it_prints_its_address_and_ends_well_on_ctrl_c(file: Path) -> None:
    command = [sys.executable, "-m", "rtagent", "rom", "record", "--demonstration", str(file)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        line = process.stdout.readline()
        assert line.startswith("rtagent rom record: http://127.0.0.1:")
        assert len(line.split("#")[1].strip()) == 43
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 0
        assert process.stdout.read() == "demonstration: nothing was recorded\n"
        assert process.stderr.read() == ""


def test_states_of_a_game_need_no_reward_file(record: Record, file: Path, tmp_path: Path) -> None:
    states = tmp_path / "states"
    done = record("2 START\n", ROM, "--states", states)
    assert (done.code, done.err) == (0, "")
    assert (states / "starfall-0001.state").is_file()
    refused = record("2 START\n", ROM, "--demonstration", file)
    assert refused.code == 2
    assert "a demonstration has rewards: give a reward file" in refused.err
