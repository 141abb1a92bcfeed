import shutil
from types import ModuleType

import pytest

from rtagent.env.gameboy.roms import cartridge
from rtagent.env.gameboy.roms.duel import build as duel
from rtagent.env.gameboy.roms.starfall import build as starfall
from tests.installed import needs

each_game = pytest.mark.parametrize("build", [duel, starfall], ids=lambda build: build.TITLE)


@each_game
@needs(shutil.which("sdcc"), "SDCC")
def test_rebuilding_gives_the_committed_cartridge(build: ModuleType):
    assert build.build_rom() == build.ROM.read_bytes()


@each_game
def test_header(build: ModuleType):
    rom = build.ROM.read_bytes()
    assert len(rom) == 32 * 1024
    assert rom[0x134:0x144].rstrip(b"\0") == build.TITLE.encode()
    assert rom[0x147] == 0, "a plain 32 KiB cartridge, no memory controller"
    assert rom[0x14D] == -sum(byte + 1 for byte in rom[0x134:0x14D]) % 256
    assert int.from_bytes(rom[0x14E:0x150], "big") == (sum(rom) - rom[0x14E] - rom[0x14F]) % 65536


def test_program_data_outside_the_cartridge_is_refused():
    with pytest.raises(cartridge.BuildError, match="0x8000"):
        cartridge.image_from_hex(":01800000007F\n:00000001FF")


def test_tiles_are_numbered_down_each_column():
    empty = ["." * 16] * 7
    rows = ["#.......-.......", *empty, "+...............", *empty]
    data = cartridge.tiles_of(rows)
    assert [data[tile * 16 : tile * 16 + 2] for tile in range(4)] == [
        [0x80, 0x80], [0, 0x80], [0x80, 0], [0, 0],
    ]


def test_each_strip_is_named_after_its_first_tile():
    one, two = "\n= one\n" + "........\n" * 8, "\n= two\n" + "########\n" * 8
    header = cartridge.tiles_header(f"; a comment{one}{two}")
    assert "#define TILE_ONE 0\n#define TILE_TWO 1\n" in header
