"""`rtagent rom`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rtagent.cli import rom as rom_command
from rtagent.env.rom import RomStatus
from tests.cli.conftest import Run


def test_the_built_in_games_are_listed_and_right(run: Run) -> None:
    listed = run("rom", "list")
    assert listed.code == 0
    assert "ok" in listed.out
    roms = json.loads(run("rom", "verify", "--json").out)
    assert [rom["status"] for rom in roms] == ["ok", "ok"]
    assert set(roms[0]) == {"title", "path", "licence", "status"}
    assert [Path(rom["path"]).name for rom in roms] == ["duel.gb", "starfall.gb"]


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
