"""Imported cartridges: verified, whole or not there, never overwritten silently."""

from __future__ import annotations

import hashlib
import stat
from pathlib import Path

import pytest

from rtagent.env.gameboy import rom_library
from rtagent.env.gameboy.rom import BUNDLED
from rtagent.env.gameboy.rom_library import KNOWN, KnownRom, find_rom, import_rom, library_roms
from rtagent.errors import UserError
from tests.cartridges import renamed
from tests.limited import limited

IMAGE = (BUNDLED / "starfall" / "starfall.gb").read_bytes()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state" / "roms"


@pytest.fixture
def rom(tmp_path: Path) -> Path:
    path = tmp_path / "Tetris (World).gb"
    path.write_bytes(renamed(IMAGE, "TETRIS"))
    return path


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch, rom: Path) -> KnownRom:
    """Tetris with the stand-in's hash."""
    sha1 = hashlib.sha1(rom.read_bytes(), usedforsecurity=False).hexdigest()
    entry = KnownRom("tetris", "TETRIS", (sha1,))
    monkeypatch.setattr(rom_library, "KNOWN", (*KNOWN[:-1], entry))
    return entry


def states(folder: Path) -> dict[str, str]:
    return {each.title: each.status for each in library_roms(folder)}


def test_the_known_hashes_are_hashes() -> None:
    hashes = [sha1 for each in KNOWN for sha1 in each.sha1]
    assert len(set(hashes)) == len(hashes)
    assert all(len(sha1) == 40 and int(sha1, 16) for sha1 in hashes)


def test_a_known_cartridge_is_imported_under_its_name(
    folder: Path, rom: Path, known: KnownRom
) -> None:
    assert states(folder) == dict.fromkeys((each.name for each in KNOWN), "missing")
    entry = import_rom(folder, rom)
    assert (entry.name, entry.sha1, entry.known) == ("tetris", known.sha1[0], True)
    assert entry.path.read_bytes() == rom.read_bytes()
    assert stat.S_IMODE(entry.path.stat().st_mode) == 0o600
    for made in (folder, folder.parent):
        assert stat.S_IMODE(made.stat().st_mode) == 0o700
    assert [each.name for each in folder.iterdir()] == [entry.path.name]
    assert import_rom(folder, rom) == entry == find_rom(folder, "tetris")
    assert states(folder)["tetris"] == "ok"


def test_an_unknown_one_needs_a_name(folder: Path, rom: Path) -> None:
    with pytest.raises(UserError, match=r"not a known one.*--as tetris imports it unverified"):
        import_rom(folder, rom)
    assert not folder.exists()
    assert not import_rom(folder, rom, "tetris").known
    assert states(folder)["tetris"] == "unverified"
    rom.write_bytes(IMAGE)
    with pytest.raises(UserError, match=r"'STARFALL'.*which is no known game; --as NAME"):
        import_rom(folder, rom)
    with pytest.raises(UserError, match="is called 'STARFALL'; tetris is called 'TETRIS'"):
        import_rom(folder, rom, "tetris", replace=True)
    for name in ("", "../x", "A", "a" * 41, "a.b"):
        with pytest.raises(UserError, match="expected lower-case letters"):
            import_rom(folder, rom, name)
    assert import_rom(folder, rom, "my-game").name == "my-game"
    assert list(states(folder).items())[-1] == ("my-game", "unverified")


def test_another_one_is_not_overwritten_unless_asked(
    folder: Path, rom: Path, tmp_path: Path
) -> None:
    first = import_rom(folder, rom, "tetris")
    other = tmp_path / "other.gb"
    other.write_bytes(renamed(IMAGE, "TETRIS")[:-1] + b"\1")
    with pytest.raises(UserError, match=r"another cartridge called tetris.*--replace"):
        import_rom(folder, other, "tetris")
    assert find_rom(folder, "tetris") == first
    second = import_rom(folder, other, "tetris", replace=True)
    assert find_rom(folder, "tetris") == second
    assert not first.path.exists()


def test_a_damaged_file_is_found_and_mended(folder: Path, rom: Path) -> None:
    entry = import_rom(folder, rom, "tetris")
    for damaged in (b"", entry.path.read_bytes()[:-1] + b"\7"):
        entry.path.write_bytes(damaged)
        assert states(folder)["tetris"] == "wrong hash"
    import_rom(folder, rom, "tetris")
    assert states(folder)["tetris"] == "unverified"


def test_missing_and_twice_are_one_line(folder: Path, rom: Path) -> None:
    with pytest.raises(UserError, match=r"the ROM tetris is not in .*rtagent rom import PATH"):
        find_rom(folder, "tetris")
    entry = import_rom(folder, rom, "tetris")
    (folder / f"tetris.{'0' * 40}.gb").write_bytes(b"")
    with pytest.raises(UserError, match="2 ROMs called tetris"):
        find_rom(folder, "tetris")
    assert entry.path.exists()


def test_a_library_that_cannot_be_read_or_written_is_one_line(
    folder: Path, tmp_path: Path, rom: Path
) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UserError, match=r"^cannot read "):
        import_rom(tmp_path / "file" / "roms", rom, "tetris")
    with limited("FSIZE", 100), pytest.raises(UserError, match=r"^cannot import .*File too large"):
        import_rom(folder, rom, "tetris")
    assert [*folder.iterdir()] == []
