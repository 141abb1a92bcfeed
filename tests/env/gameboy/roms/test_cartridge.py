import pytest

from rtagent.env.gameboy.roms import cartridge


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
