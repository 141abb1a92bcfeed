"""Recordings of bundled games that are played by a script."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from rtagent.env.gameboy.rom import BUNDLED
from tests.env.gameboy.roms import player

HERE = Path(__file__).parent
ROOT = HERE.parents[3]


class Recording:
    """The variables of the manifest, by name, and pictures, at each frame."""

    def __init__(self, game: str, path: Path) -> None:
        self._variables = tomllib.loads((BUNDLED / game / "manifest.toml").read_text())["ram"]
        with np.load(path) as arrays:
            self.ram, self.pictures = arrays["ram"], arrays["pictures"]

    def __getitem__(self, name: str) -> np.ndarray:
        entry = self._variables[name]
        start = entry["address"] - 0xC000
        low, high = self.ram[:, start : start + 2].astype(np.int64).T
        return low + 256 * high if entry["type"] == "u2le" else low

    def values(self, name: str) -> list[int]:
        """The values of the variable in their order, without repeats."""
        column = self[name]
        return column[np.flatnonzero(np.diff(column, prepend=column[0] - 1))].tolist()


@pytest.fixture(scope="module")
def play(tmp_path_factory):
    output = tmp_path_factory.mktemp("played") / "recording.npz"

    def play(game: str, emulator: str = "gambatte", **options: int) -> Recording:
        if emulator == "pyboy":
            player.record(game, emulator, str(output), **options)
        else:
            subprocess.run(
                [sys.executable, player.__file__, game, emulator, output, json.dumps(options)],
                env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True, timeout=120,
            )
        return Recording(game, output)

    return play
