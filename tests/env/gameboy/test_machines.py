"""Both emulators are the same machine, and each refuses what it cannot do."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pytest

from rtagent.env.gameboy.emulators import switch_on
from rtagent.env.gameboy.gambatte_machine import GameBoy
from rtagent.env.gameboy.game import BOOT_FRAMES
from rtagent.env.gameboy.machine import Machine, Snapshot
from rtagent.env.gameboy.pyboy_machine import GREYS, PyBoyMachine
from rtagent.errors import UserError
from tests.cartridges import ROM

MAGIC, SCREEN, FRAME, BOAT = 0xC000, 0xC001, 0xC006, 0xC008
TITLE, PLAYING = 0, 1
IMAGE = ROM.read_bytes()


def run(machine: Machine, frames: int, *buttons: str) -> None:
    machine.press(buttons)
    for _ in range(frames):
        machine.step()


@pytest.fixture(params=["gambatte", "pyboy"])
def machine(request: pytest.FixtureRequest) -> Iterator[Machine]:
    """A machine that shows the title."""
    with closing(switch_on(request.param, IMAGE)) as running:
        run(running, BOOT_FRAMES)
        yield running


def test_memory_and_picture_are_those_of_the_last_frame(machine: Machine) -> None:
    assert machine.ram.u8(MAGIC) == 0x5A
    before = machine.ram.u8(FRAME)
    run(machine, 10)
    assert machine.ram.u8(FRAME) == (before + 10) % 256
    picture = machine.screen()
    assert (picture.shape, picture.dtype) == ((144, 160, 3), np.uint8)
    colours = {tuple(each) for each in picture.reshape(-1, 3).tolist()}
    assert len(colours) > 2
    assert colours <= {tuple(each) for each in GREYS.tolist()}
    kept = picture.copy()
    run(machine, 2, "START")
    run(machine, 30)
    np.testing.assert_array_equal(picture, kept)
    assert (machine.screen() != kept).any()


def test_buttons_stay_held_until_the_next_press(machine: Machine) -> None:
    run(machine, 2, "START")
    run(machine, 5)
    assert machine.ram.u8(SCREEN) == PLAYING
    begun = machine.ram.u8(BOAT)
    run(machine, 10, "LEFT")
    left = machine.ram.u8(BOAT)
    assert left < begun
    run(machine, 10)
    assert machine.ram.u8(BOAT) >= left - 4
    with pytest.raises(ValueError, match="unknown button 'X'"):
        machine.press(["X"])


def test_restoring_brings_back_picture_memory_and_future(machine: Machine) -> None:
    title = machine.snapshot()

    def play() -> np.ndarray:
        run(machine, 3, "START")
        pictures = []
        for turn in range(40):
            run(machine, 5, "LEFT" if turn % 3 else "RIGHT")
            pictures.append(machine.screen().copy())
        return np.stack(pictures)

    first = play()
    machine.restore(title)
    np.testing.assert_array_equal(machine.screen(), title.picture)
    assert machine.ram.u8(SCREEN) == TITLE
    np.testing.assert_array_equal(play(), first)
    with pytest.raises(ValueError, match="not taken from this cartridge"):
        machine.restore(Snapshot(title.state[:100], title.picture))


def test_held_buttons_are_not_part_of_a_snapshot(machine: Machine) -> None:
    run(machine, 2, "START")
    run(machine, 10)
    run(machine, 1, "RIGHT")
    state, place = machine.snapshot(), machine.ram.u8(BOAT)
    machine.press([])
    machine.restore(state)
    run(machine, 5)
    machine.restore(state)
    machine.step()
    first = machine.ram.u8(BOAT)
    run(machine, 20)
    assert machine.ram.u8(BOAT) == pytest.approx(first, abs=4)
    machine.restore(state)
    run(machine, 20, "RIGHT")
    assert machine.ram.u8(BOAT) > place + 4


def test_gambatte_runs_once_in_a_process_and_makes_room_when_it_is_closed() -> None:
    first = GameBoy(IMAGE)
    run(first, BOOT_FRAMES)
    memory = first.ram
    assert memory.u16le(FRAME) == memory.u8(FRAME) + 256 * memory.u8(FRAME + 1)
    with pytest.raises(IndexError):
        memory.u8(0x0100)
    with pytest.raises(RuntimeError, match="this process runs a Game Boy already"):
        GameBoy(IMAGE)
    first.close()
    first.close()
    for use in (first.step, first.screen, lambda: memory.u8(MAGIC)):
        with pytest.raises(RuntimeError, match="switched off"):
            use()
    second = GameBoy(IMAGE)
    run(second, 60)
    assert second.ram.u8(MAGIC) == 0x5A
    del second
    gc.collect()
    GameBoy(IMAGE).close()


def test_what_is_no_cartridge_is_refused() -> None:
    with pytest.raises(ValueError, match=r"not a Game Boy cartridge \(4 bytes\)"):
        GameBoy(b"none")


def test_pyboy_runs_several_times_and_each_goes_back_to_its_own() -> None:
    with closing(PyBoyMachine(IMAGE)) as one, closing(PyBoyMachine(IMAGE)) as other:
        run(one, BOOT_FRAMES)
        title = one.snapshot()
        run(one, 2, "START")
        run(one, 30, "LEFT")
        other.restore(title)
        assert (one.ram.u8(SCREEN), other.ram.u8(SCREEN)) == (PLAYING, TITLE)
        np.testing.assert_array_equal(other.screen(), title.picture)
        other.close()
        for state in (b"", b"none", b"\0\1\0\0\0a", b"\1", b"\xff"):
            with pytest.raises(ValueError, match="not taken by PyBoy"):
                one.restore(Snapshot(state, one.screen()))


def test_without_pyboy_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyboy", None)
    with pytest.raises(UserError, match=r"pip install 'rtagent\[pyboy\]'"):
        switch_on("pyboy", IMAGE)
