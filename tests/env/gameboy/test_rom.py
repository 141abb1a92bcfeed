import dataclasses
import re
import shutil

import pytest

from rtagent.env.gameboy.rom import BUNDLED, MANIFEST, bundled_roms, read_manifest
from rtagent.errors import UserError
from tests.refused import one_line


@pytest.fixture
def shelf(tmp_path):
    """A copy of the bundled cartridge that a test may spoil."""
    folder = tmp_path / "starfall"
    folder.mkdir()
    for name in (MANIFEST, "starfall.gb"):
        shutil.copy(BUNDLED / "starfall" / name, folder)
    return tmp_path


def test_the_bundled_cartridge_is_what_its_manifest_says(rom):
    assert rom.title == "STARFALL"
    assert len(rom.read()) == 32768
    assert rom.actions == ((), ("LEFT",), ("RIGHT",))
    assert rom.action_meanings == ("NOOP", "LEFT", "RIGHT")
    assert (rom.addresses["magic"], rom.addresses["score"]) == (0xC000, 0xC002)


def test_listing_names_title_licence_and_state(shelf):
    def states():
        return [(rom.title, rom.licence, rom.status) for rom in bundled_roms(shelf)]

    assert states() == [("STARFALL", "MIT", "ok")]
    image = shelf / "starfall" / "starfall.gb"
    image.write_bytes(image.read_bytes()[:-1])
    assert states() == [("STARFALL", "MIT", "wrong hash")]
    image.unlink()
    assert states() == [("STARFALL", "MIT", "missing")]
    assert bundled_roms(shelf)[0].path == image
    with pytest.raises(UserError, match=r"the cartridge STARFALL is missing: .*starfall\.gb"):
        read_manifest(shelf / "starfall").read()


def test_everything_that_comes_with_the_program_is_ok():
    assert {rom.status for rom in bundled_roms()} == {"ok"}


def test_a_wrong_hash_names_what_was_expected_and_found(rom):
    other = dataclasses.replace(rom, sha256="0" * 64)
    with one_line(f"sha256 expected {'0' * 64}, found {rom.sha256}"):
        other.read()


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("sha256 =", "sha512 =", "sha256 is missing"),
        ("[ram]", "[memory]", "ram is missing"),
        ("[[], ", "[", "2 actions, but 3 action_meanings"),
        ("title =", "title", "manifest.toml"),
        ("address = 0xC000", 'address = "here"', "manifest.toml"),
    ],
)
def test_a_bad_manifest_is_one_line(shelf, old, new, reason):
    path = shelf / "starfall" / MANIFEST
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    with one_line(re.escape(reason)):
        bundled_roms(shelf)
    with pytest.raises(UserError, match="cannot read"):
        read_manifest(shelf)
