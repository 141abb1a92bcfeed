"""The games of the Realtime RL paper, with cartridges that the user has imported."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rtagent.config_sources import load_config
from rtagent.env.gameboy.game import BOOT_FRAMES, PAPER_ACTIONS, Game
from rtagent.env.gameboy.rom_library import FOLDER, find_rom

REWARD_FILES = Path(__file__).parent / "reward_files"


class PaperGame(Game):
    """One of the paper's games; actions 0 A, 1 B, 2 LEFT, 3 UP, 4 RIGHT, 5 DOWN, 6 NOOP."""

    def __init__(
        self,
        name: str,
        rewards: str,
        start: str | Path = "",
        roms: str | Path = "",
        actions: Sequence[str] = PAPER_ACTIONS,
        max_ticks: int = 0,
        boot_frames: int = BOOT_FRAMES,
        backend: str = "gambatte",
        render_mode: str | None = None,
    ) -> None:
        """Look the cartridge up and go to the start.

        Args:
            name: of the imported cartridge.
            rewards: of the built-in reward file.
            start: where every episode begins: a state or a script of keys, see `Game`.
            roms: folder of the cartridges. If None, that of the configured state directory.
            actions: as in `Game`.
            max_ticks: as in `Game`.
            boot_frames: as in `Game`.
            backend: as in `Game`.
            render_mode: as in `Game`.

        Raises:
            UserError: the cartridge is not imported, or damaged; or as in `Game`.
            RuntimeError: this process runs a gambatte core already.
        """
        folder = Path(roms).expanduser() if roms else load_config().state_dir / FOLDER
        rom = find_rom(folder, name)
        super().__init__(
            rom=rom.path, rewards=REWARD_FILES / f"{rewards}.toml", start=start, actions=actions,
            max_ticks=max_ticks, boot_frames=boot_frames, sha1=rom.sha1, backend=backend,
            render_mode=render_mode,
        )
