"""The second emulator shows and remembers what the first one does."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from rtagent.env.gameboy.gambatte_machine import GameBoy
from rtagent.env.gameboy.game import BOOT_FRAMES, Game
from rtagent.env.gameboy.machine import Machine, Snapshot, switch_on
from rtagent.env.gameboy.pyboy_machine import GREYS, PyBoyMachine
from rtagent.env.gameboy.rom import BUNDLED, read_manifest
from rtagent.errors import UserError
from tests.cartridges import REWARDS, ROM

FIRST_FRAME = 8
FRAMES = 300


@pytest.fixture(scope="module")
def image() -> bytes:
    return read_manifest(BUNDLED / "starfall").read()


@pytest.fixture
def pyboy(image: bytes):
    machine = PyBoyMachine(image)
    yield machine
    machine.close()


def run(machine: Machine, frames: int, *buttons: str) -> None:
    machine.press(buttons)
    for _ in range(frames):
        machine.step()


def frame_of(machine: Machine) -> int:
    return machine.ram.u8(0xC006) + 256 * machine.ram.u8(0xC007)


def recorded(machine: Machine) -> tuple[list[bytes], np.ndarray]:
    """Keys by the game's own frame counter; its variables and its picture at each frame."""
    while machine.ram.u8(0xC000) != 0x5A or frame_of(machine) < FIRST_FRAME:
        machine.step()
    rams, pictures = [], []
    for _ in range(FRAMES):
        frame = frame_of(machine)
        machine.press(["START"] if frame == 40 else [("LEFT", "RIGHT")[frame // 50 % 2]])
        machine.step()
        rams.append(bytes(machine.ram.u8(0xC000 + each) for each in range(24)))
        pictures.append(machine.screen().copy())
    return rams, np.stack(pictures)


def test_both_emulators_agree_in_memory_and_picture(image: bytes, pyboy: PyBoyMachine) -> None:
    gambatte = GameBoy(image)
    try:
        first, second = recorded(gambatte), recorded(pyboy)
    finally:
        gambatte.close()
    assert first[0] == second[0]
    np.testing.assert_array_equal(first[1], second[1])
    assert set(np.unique(second[1][..., 0])) == set(GREYS[:, 0])


def test_several_at_once_and_each_goes_back_to_its_own(image: bytes, pyboy: PyBoyMachine) -> None:
    run(pyboy, BOOT_FRAMES)
    title = pyboy.snapshot()
    run(pyboy, 2, "START")
    run(pyboy, 30, "LEFT")
    assert pyboy.ram.u8(0xC001) == 1
    other = PyBoyMachine(image)
    other.restore(title)
    assert other.ram.u8(0xC001) == 0
    assert pyboy.ram.u8(0xC001) == 1
    np.testing.assert_array_equal(other.screen(), title.picture)
    other.close()
    other.close()
    with pytest.raises(ValueError, match="not taken from this cartridge"):
        pyboy.restore(Snapshot(title.state[:100], title.picture))


@pytest.mark.parametrize("state", [b"", b"none", b"\0\1\0\0\0a", b"\1", b"\xff"])
def test_a_state_of_another_emulator_is_refused_before_pyboy_takes_it(
    pyboy: PyBoyMachine, state: bytes
) -> None:
    with pytest.raises(ValueError, match="not taken by PyBoy"):
        pyboy.restore(Snapshot(state, pyboy.screen()))


def test_held_buttons_are_not_part_of_a_snapshot(pyboy: PyBoyMachine) -> None:
    run(pyboy, BOOT_FRAMES)
    run(pyboy, 2, "START")
    run(pyboy, 10)
    pyboy.press(["RIGHT"])
    pyboy.step()
    state, place = pyboy.snapshot(), pyboy.ram.u8(0xC008)
    pyboy.press([])
    pyboy.restore(state)
    run(pyboy, 5)
    pyboy.restore(state)
    pyboy.step()
    first = pyboy.ram.u8(0xC008)
    run(pyboy, 20)
    assert pyboy.ram.u8(0xC008) == pytest.approx(first, abs=4)
    pyboy.restore(state)
    run(pyboy, 20, "RIGHT")
    assert pyboy.ram.u8(0xC008) > place + 4
    with pytest.raises(ValueError, match="unknown button 'X'"):
        pyboy.press(["X"])


def test_a_game_runs_on_it(tmp_path: Path) -> None:
    rewards = tmp_path / "rewards.toml"
    rewards.write_text(REWARDS)
    games = [Game(ROM, rewards, backend="pyboy", actions=["NOOP", "START"]) for _ in range(2)]
    for each in games:
        each.reset(seed=0)
    for _ in range(5):
        *_, info = games[0].step(1)
    assert info["screen"] == 1
    assert games[1].step(0)[4]["screen"] == 0
    for each in games:
        each.close()


def test_without_pyboy_it_says_what_to_install(
    image: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyboy", None)
    with pytest.raises(UserError, match=r"pip install 'rtagent\[pyboy\]'"):
        switch_on("pyboy", image)
