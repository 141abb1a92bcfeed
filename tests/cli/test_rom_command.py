"""`rtagent rom`."""

from __future__ import annotations

from pathlib import Path

import pytest

from rtagent.cli import rom as rom_command
from rtagent.env.gameboy.rom import RomStatus, bundled_roms
from tests.cli.conftest import Run

pytestmark = pytest.mark.usefixtures("state_dir")


def test_the_built_in_games_are_listed_and_right(run: Run) -> None:
    listed = run("rom", "list")
    assert listed.code == 0
    assert "ok" in listed.out
    assert "missing" in listed.out
    roms = run("rom", "verify", "--json").document()
    assert [rom["status"] for rom in roms] == ["ok"] * 2 + ["missing"] * 4
    assert set(roms[0]) == {"title", "path", "licence", "status"}
    assert [Path(rom["path"]).name for rom in roms[:2]] == ["duel.gb", "starfall.gb"]


def test_a_cartridge_is_imported_and_verified(run: Run, state_dir: Path) -> None:
    mine = str(bundled_roms()[1].path)
    unknown = run("rom", "import", mine)
    assert unknown.code == 2
    assert "--as NAME" in unknown.err
    assert not state_dir.exists()
    done = run("rom", "import", mine, "--as", "mine")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("mine: unverified: ")
    (told,) = run("rom", "import", mine, "--as", "mine", "--json").document()
    assert (told["name"], told["verified"]) == ("mine", False)
    assert Path(told["path"]).parent == state_dir / "roms"
    assert run("rom", "list", "--json").document()[-1]["status"] == "unverified"
    assert run("rom", "verify").code == 0
    Path(told["path"]).write_bytes(b"")
    refused = run("rom", "verify")
    assert refused.code == 2
    assert refused.err.startswith("rtagent: mine: wrong hash: ")
    assert run("rom", "list", "--state-dir", str(state_dir / "other")).code == 0


@pytest.mark.parametrize("status", ["missing", "wrong hash"])
def test_verify_fails_on_a_wrong_cartridge(
    run: Run, monkeypatch: pytest.MonkeyPatch, status: str
) -> None:
    found = RomStatus("Starfall", Path("some/starfall.gb"), "MIT", status)  # type: ignore[arg-type]
    monkeypatch.setattr(rom_command, "bundled_roms", lambda: [found])
    assert run("rom", "list").code == 0
    refused = run("rom", "verify")
    assert refused.code == 2
    assert refused.err.startswith(f"rtagent: Starfall: {status}: some/starfall.gb")
    assert status in refused.out
