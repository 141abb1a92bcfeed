"""The games of the Realtime RL paper, with cartridges that the user has imported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rtagent.config_sources import load_config
from rtagent.env.gameboy.game import Game
from rtagent.env.gameboy.rom_library import FOLDER, find_rom
from rtagent.errors import UserError

REWARD_FILES = Path(__file__).parent / "reward_files"


class PaperGame(Game):
    """One of the paper's games; actions 0 A, 1 B, 2 LEFT, 3 UP, 4 RIGHT, 5 DOWN, 6 NOOP.

    Args:
        name, rewards: names of the imported cartridge and of the built-in reward file.
        roms: folder of the cartridges. If empty, that of the configured state directory.
        options: as in `Game`.

    Raises:
        UserError: as `Game`, or if the cartridge is missing.
        RuntimeError: as `Game`.
    """

    def __init__(self, name: str, rewards: str, roms: str | Path = "", **options: Any) -> None:
        folder = Path(roms).expanduser() if roms else load_config().state_dir / FOLDER
        try:
            rom = find_rom(folder, name)
        except UserError as error:
            raise UserError(f"{error}; env.kwargs.roms names another folder") from None
        path = REWARD_FILES / f"{rewards}.toml"
        super().__init__(rom=rom.path, rewards=path, sha1=rom.sha1, **options)
