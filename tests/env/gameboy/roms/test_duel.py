import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from rtagent.env.gameboy.roms.duel import build

HERE = Path(__file__).parent
ROOT = HERE.parents[3]
ROM = build.ROM
MANIFEST = tomllib.loads((build.SOURCE / "manifest.toml").read_text())
TITLE, COMMANDS, RESULT = 0, 2, 7
WON, CAUGHT, LOST = 1, 2, 3


class Recording:
    """What one scripted run left behind, by the names of the manifest."""

    def __init__(self, path: Path) -> None:
        with np.load(path) as arrays:
            self.ram, self.pictures = arrays["ram"], arrays["pictures"]

    def __getitem__(self, name: str) -> np.ndarray:
        entry = MANIFEST["ram"][name]
        start = entry["address"] - 0xC000
        low, high = self.ram[:, start : start + 2].astype(np.int64).T
        return low + 256 * high if entry["type"] == "u2le" else low

    def values(self, name: str) -> list[int]:
        """What the variable was, one after the other, without repeats."""
        column = self[name]
        return column[np.flatnonzero(np.diff(column, prepend=column[0] - 1))].tolist()


@pytest.fixture(scope="module")
def play(tmp_path_factory):
    folder = tmp_path_factory.mktemp("duel")

    def play(emulator: str, **options: int) -> Recording:
        output = folder / "recording.npz"
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
        player = HERE / "duel_player.py"
        subprocess.run(
            [sys.executable, player, emulator, ROM, output, *flags],
            env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True, timeout=120,
        )
        return Recording(output)

    return play


@pytest.fixture(scope="module")
def both(play):
    script = {"encounter": 19, "successes": 2, "frames": 1880, "picture_every": 1}
    return play("gambatte", **script), play("pyboy", **script)


def test_rebuilding_gives_the_committed_cartridge():
    if shutil.which("sdcc") is None and not os.environ.get("CI"):
        pytest.skip("sdcc is not installed")
    assert build.build_rom() == ROM.read_bytes()


def test_header():
    rom = ROM.read_bytes()
    assert len(rom) == 32 * 1024
    assert rom[0x134:0x144].rstrip(b"\0") == b"DUEL"
    assert rom[0x147] == 0, "a plain 32 KiB cartridge, no memory controller"
    assert rom[0x14D] == -sum(byte + 1 for byte in rom[0x134:0x14D]) % 256
    assert int.from_bytes(rom[0x14E:0x150], "big") == (sum(rom) - rom[0x14E] - rom[0x14F]) % 65536


def test_manifest_matches_the_file():
    rom = ROM.read_bytes()
    assert MANIFEST["file"] == ROM.name
    assert hashlib.sha1(rom, usedforsecurity=False).hexdigest() == MANIFEST["sha1"]
    assert hashlib.sha256(rom).hexdigest() == MANIFEST["sha256"]
    assert len(MANIFEST["actions"]) == len(MANIFEST["action_meanings"])


def test_creatures_are_mirrored_and_doubled():
    assert build.whole(["#.", ".-"]) == ["##....##", "##....##", "..----..", "..----.."]


def test_gambatte_and_pyboy_agree_on_every_frame(both):
    gambatte, pyboy = both
    np.testing.assert_array_equal(gambatte.ram, pyboy.ram)
    np.testing.assert_array_equal(gambatte.pictures, pyboy.pictures)
    assert set(np.unique(gambatte.pictures)) == {0, 1, 2, 3}
    assert set(gambatte["screen"]) == set(range(8)), "every screen was seen"


def test_every_frame_counts_exactly_once(both):
    assert set(np.diff(both[0]["frame"])) == {1}, "no step is ever too long for its frame"


def test_a_success_leads_on_and_a_loss_repeats(both):
    run, _ = both
    assert [outcome for outcome in run.values("outcome") if outcome] == [CAUGHT, WON, LOST]
    assert (run["catches"][-1], run["wins"][-1], run["losses"][-1]) == (1, 1, 1)
    assert run.values("encounter") == [0, 19, 20, 21]
    begun = run["screen"] == COMMANDS
    assert run["encounter"][begun][-1] == 21, "the lost one again"


def test_an_encounter_begins_with_everybody_well_and_a_full_bag(both):
    run, _ = both
    opened = np.flatnonzero((run["screen"][1:] == COMMANDS) & (run["turn"][1:] == 0)) + 1
    for moment in opened:
        for who in ("own", "second", "third", "fourth", "opponent"):
            assert run[f"{who}_hp"][moment] == run[f"{who}_hp_max"][moment]
        assert run["potion_items"][moment] == 2
        assert run["ball_items"][moment] == (3 if run["wild"][moment] else 0)
    assert {int(run["encounter"][moment]) for moment in opened} == {19, 20, 21}


def test_whom_one_catches_comes_along(both):
    run, _ = both
    before = run["encounter"] == 19
    caught = run["opponent_species"][before][-1]
    assert set(run["party_size"][before]) == {3}
    assert set(run["party_size"][run["encounter"] == 20]) == {4}
    first = np.flatnonzero(run["encounter"] == 20)[0]
    assert run["fourth_species"][first] == caught
