"""Builds the cartridge of a Game Boy game from its sources, with SDCC.

The result depends on the sources and on the version of SDCC (4.2.0) alone: tests rebuild every
cartridge and compare it, byte for byte, with the committed one.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from rtagent.env.gameboy.rom_file import HEADER_CHECKSUM, header_checksum

ROM_SIZE = 0x8000
ENTRY = Path(__file__).parent / "crt0.s"
TILE = 8
SHADES = {".": 0, "-": 1, "+": 2, "#": 3}
COMPILE = ("sdcc", "-msm83", "--opt-code-size", "--Werror", "-c")
LINK = ("sdcc", "-msm83", "--no-std-crt0", "--code-loc", "0x0200", "--data-loc", "0xC100")


class BuildError(Exception):
    """The cartridge could not be built; the message says why."""


def build_cartridge(
    source: Path, title: str, parts: tuple[str, ...], headers: Mapping[str, str]
) -> bytes:
    """Compile a game.

    Args:
        source: folder with `game.h`, one C file for each part, and the assembler files.
        title: the title in the header, at most 11 letters.
        parts: C files, without `.c`, in the order in which they are linked.
        headers: the texts of generated headers, by their names.

    Returns:
        The 32 KiB cartridge image, header included.

    Raises:
        BuildError: SDCC is not installed or refuses the sources.
    """
    if shutil.which("sdcc") is None:
        raise BuildError("sdcc not found: install SDCC 4.2 (Debian: apt install sdcc)")
    with tempfile.TemporaryDirectory(prefix="cartridge-") as name:
        folder = Path(name)
        for header, text in headers.items():
            (folder / header).write_text(text)
        shutil.copy(source / "game.h", folder)
        assembled = [ENTRY, *sorted(source.glob("*.s"))]
        for file in assembled:
            shutil.copy(file, folder)
            _run(folder, "sdasgb", "-o", f"{file.stem}.rel", file.name)
        for part in parts:
            shutil.copy(source / f"{part}.c", folder)
            _run(folder, *COMPILE, f"{part}.c")
        objects = [f"{stem}.rel" for stem in (*(file.stem for file in assembled), *parts)]
        _run(folder, *LINK, *objects, "-o", "game.ihx")
        return with_header(image_from_hex((folder / "game.ihx").read_text()), title)


def strips_of(pictures: str) -> dict[str, list[str]]:
    """The rows of each drawn picture, by the picture's name.

    Args:
        pictures: for each picture `= name`, then rows of pixels; `;` begins a comment's line.
    """
    strips: dict[str, list[str]] = {}
    for strip in pictures.split("\n= ")[1:]:
        name, *lines = strip.splitlines()
        strips[name] = [line for line in lines if line and not line.startswith(";")]
    return strips


def tiles_header(pictures: str) -> str:
    """The text of `tiles.txt` as a C header: a `TILE_<NAME>` for each strip, and `tile_data`."""
    names: list[str] = []
    data: list[int] = []
    for name, rows in strips_of(pictures).items():
        names.append(f"#define TILE_{name.upper()} {len(data) // 16}")
        data += tiles_of(rows)
    values = ",".join(map(str, data))
    return "\n".join([*names, f"static const uint8_t tile_data[] = {{{values}}};", ""])


def tiles_of(rows: list[str]) -> list[int]:
    """The bytes of a picture's tiles, down each column of 8 pixels, column after column.

    Args:
        rows: pixels, one character of `SHADES` each.
    """
    lefts = range(0, len(rows[0]), TILE)
    return [each for left in lefts for row in rows for each in _bit_planes(row[left : left + TILE])]


def image_from_hex(text: str) -> bytearray:
    """The cartridge image from the linker's Intel HEX; unused bytes are 0xFF.

    Raises:
        BuildError: a record lies outside the cartridge.
    """
    image = bytearray(b"\xff" * ROM_SIZE)
    for line in text.split():
        record = bytes.fromhex(line.removeprefix(":"))
        count, address, kind = record[0], int.from_bytes(record[1:3], "big"), record[3]
        if kind != 0:
            continue
        if address + count > ROM_SIZE:
            raise BuildError(f"the program does not fit: data at 0x{address:04X}")
        image[address : address + count] = record[4 : 4 + count]
    return image


def with_header(image: bytearray, title: str) -> bytes:
    """Fill in the header (0x104 to 0x14F) of a 32 KiB image, with both checksums."""
    name = title.encode("ascii")
    image[0x104:0x150] = bytes(0x150 - 0x104)
    image[0x134 : 0x134 + len(name)] = name
    image[0x14A], image[0x14B] = 0x01, 0x33
    image[HEADER_CHECKSUM] = header_checksum(image)
    image[0x14E:0x150] = (sum(image) & 0xFFFF).to_bytes(2, "big")
    return bytes(image)


def build_command(build: Callable[[], bytes], output: Path) -> int:
    """The command that builds a cartridge, writes it, and prints its hash for `manifest.toml`.

    Returns:
        The exit status: 0, or 2 if the cartridge could not be built.
    """
    parser = argparse.ArgumentParser(description="Build a cartridge with SDCC.")
    parser.add_argument("--output", type=Path, default=output)
    path: Path = parser.parse_args().output
    try:
        rom = build()
        path.write_bytes(rom)
    except (BuildError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f'sha256 = "{hashlib.sha256(rom).hexdigest()}"')
    return 0


def _bit_planes(pixels: str) -> tuple[int, int]:
    shades = [SHADES[pixel] for pixel in pixels.ljust(TILE, ".")]
    low, high = ("".join(str(shade >> bit & 1) for shade in shades) for bit in (0, 1))
    return int(low, 2), int(high, 2)


def _run(folder: Path, *command: str) -> None:
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        reason = " / ".join((result.stderr + result.stdout).split("\n")[:3]).strip(" /")
        raise BuildError(f"{command[0]} failed: {reason}")
