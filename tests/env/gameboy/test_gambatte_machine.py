import gc

import numpy as np
import pytest

from rtagent.env.gameboy.gambatte_machine import GameBoy

PLAYING = 1


def run(machine, frames, buttons=()):
    machine.press(buttons)
    for _ in range(frames):
        machine.step()


@pytest.fixture(scope="module")
def title(game_boy):
    run(game_boy, 60)
    return game_boy.snapshot()


@pytest.fixture
def at_title(game_boy, title):
    game_boy.restore(title)
    return game_boy


def test_ram_is_read_in_place(at_title, rom):
    at = rom.addresses
    assert at_title.ram.u8(at["magic"]) == 0x5A
    before = at_title.ram.u16le(at["frame"])
    run(at_title, 10)
    frame = at_title.ram.u16le(at["frame"])
    assert frame == before + 10
    assert frame == at_title.ram.u8(at["frame"]) + 256 * at_title.ram.u8(at["frame"] + 1)
    with pytest.raises(IndexError):
        at_title.ram.u8(0x0100)


def test_screen_is_the_picture_of_the_last_frame(at_title, rom):
    picture = at_title.screen()
    assert (picture.shape, picture.dtype) == ((144, 160, 3), np.uint8)
    assert len(np.unique(picture)) > 2
    kept = picture.copy()
    run(at_title, 2, ["START"])
    run(at_title, 30)
    np.testing.assert_array_equal(picture, kept)
    assert (at_title.screen() != kept).any()


def test_buttons_stay_held_until_the_next_press(at_title, rom):
    run(at_title, 2, ["START"])
    assert at_title.ram.u8(rom.addresses["screen"]) == PLAYING
    left = at_title.ram.u8(rom.addresses["paddle_x"])
    run(at_title, 10, ["LEFT"])
    assert at_title.ram.u8(rom.addresses["paddle_x"]) < left
    left = at_title.ram.u8(rom.addresses["paddle_x"])
    run(at_title, 10)
    assert at_title.ram.u8(rom.addresses["paddle_x"]) >= left - 4
    with pytest.raises(ValueError, match="unknown button 'X'"):
        at_title.press(["X"])


def test_restoring_brings_back_picture_memory_and_future(at_title, rom, title):
    def play():
        run(at_title, 3, ["START"])
        pictures = []
        for turn in range(40):
            run(at_title, 5, ["LEFT"] if turn % 3 else ["RIGHT"])
            pictures.append(at_title.screen())
        return np.stack(pictures)

    first = play()
    at_title.restore(title)
    np.testing.assert_array_equal(at_title.screen(), title.picture)
    assert at_title.ram.u8(rom.addresses["screen"]) == 0
    np.testing.assert_array_equal(play(), first)


def test_a_foreign_snapshot_is_refused(game_boy, title):
    with pytest.raises(ValueError, match="not taken from this cartridge"):
        game_boy.restore(type(title)(title.state[:100], title.picture))


def test_one_machine_in_a_process_at_a_time(game_boy, rom):
    with pytest.raises(RuntimeError, match="this process runs a Game Boy already"):
        GameBoy(rom.path)


def test_a_closed_machine_makes_room_and_refuses_to_run(rom, request):
    request.getfixturevalue("game_boy").close()
    first = GameBoy(rom.path)
    memory = first.ram
    first.close()
    first.close()
    for use in (first.step, first.screen, lambda: memory.u8(0xC000)):
        with pytest.raises(RuntimeError, match="switched off"):
            use()
    second = GameBoy(rom.path)
    run(second, 60)
    assert second.ram.u8(rom.addresses["magic"]) == 0x5A
    del second
    gc.collect()
    GameBoy(rom.path).close()


def test_what_is_no_cartridge_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"not a Game Boy cartridge \(4 bytes\)"):
        GameBoy(b"none")
    with pytest.raises(FileNotFoundError):
        GameBoy(tmp_path / "none.gb")
