"""Cartridges that come with rtagent: their manifests, and the check of their images.

The emulator loads whatever it is given; in another revision of a game the variables lie at other
addresses, and rewards would be noise. So the hash is checked each time a cartridge is opened.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rtagent.env.gameboy.rom_file import LARGEST
from rtagent.errors import UserError
from rtagent.files.regular_file import read_regular
from rtagent.files.toml_file import read_toml

BUNDLED = Path(__file__).parent / "roms"
MANIFEST = "manifest.toml"


@dataclass(frozen=True)
class Rom:
    """One cartridge as its manifest describes it.

    Attributes:
        title: the game's name.
        path: file of the cartridge's image.
        sha256: the image's hash, lower-case hex.
        licence: terms under which it may be used.
        actions, action_meanings: for each action the buttons that it holds, and a word.
        addresses: the address of each variable, by its name.
    """

    title: str
    path: Path
    sha256: str
    licence: str
    actions: tuple[tuple[str, ...], ...]
    action_meanings: tuple[str, ...]
    addresses: Mapping[str, int]

    def read(self) -> bytes:
        """The verified image; a UserError if the file is missing or has another hash."""
        try:
            image = read_regular(self.path, LARGEST)
        except OSError as error:
            raise UserError(
                f"the cartridge {self.title} is missing: {self.path}: {error.strerror}"
            ) from None
        found = hashlib.sha256(image).hexdigest()
        if found != self.sha256:
            raise UserError(
                f"{self.path} is not the cartridge {self.title}: "
                f"sha256 expected {self.sha256}, found {found}"
            )
        return image


Status = Literal["ok", "unverified", "missing", "wrong hash"]


@dataclass(frozen=True)
class RomStatus:
    """One line of `rtagent rom list`.

    Attributes:
        title: the game.
        path: its file; if it is missing, the place for it.
        licence: terms under which it may be used.
        status: `unverified` means whole, but not a known revision.
    """

    title: str
    path: Path
    licence: str
    status: Status


def read_manifest(folder: Path) -> Rom:
    """Read `manifest.toml` of a cartridge's folder; the image itself is not touched.

    Raises:
        UserError: the manifest is missing, or lacks something.
    """
    path = folder / MANIFEST
    try:
        return _parse(folder, read_toml(path))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    except KeyError as error:
        raise UserError(f"{path}: {error.args[0]} is missing") from None
    except (AttributeError, TypeError, ValueError) as error:
        raise UserError(f"{path}: {error}") from None


def bundled_roms(folder: Path = BUNDLED) -> list[RomStatus]:
    """The cartridges that come with rtagent, by title, each verified.

    Raises:
        UserError: the manifest in one of the folders cannot be read.
    """
    roms = [read_manifest(path.parent) for path in folder.glob(f"*/{MANIFEST}")]
    return [
        RomStatus(rom.title, rom.path, rom.licence, _status(rom))
        for rom in sorted(roms, key=lambda rom: rom.title)
    ]


def _status(rom: Rom) -> Status:
    if not rom.path.is_file():
        return "missing"
    try:
        rom.read()
    except UserError:
        return "wrong hash"
    return "ok"


def _parse(folder: Path, values: Mapping[str, Any]) -> Rom:
    actions = tuple(tuple(map(str, buttons)) for buttons in values["actions"])
    meanings = tuple(map(str, values["action_meanings"]))
    if len(meanings) != len(actions):
        raise ValueError(f"{len(actions)} actions, but {len(meanings)} action_meanings")
    return Rom(
        title=str(values["title"]), path=folder / str(values["file"]),
        sha256=str(values["sha256"]).lower(), licence=str(values["licence"]), actions=actions,
        action_meanings=meanings,
        addresses={name: int(entry["address"]) for name, entry in values["ram"].items()},
    )
