"""Build the Starfall cartridge from its sources with SDCC.

    python -m rtagent.env.roms.starfall.build [--output PATH]

The result depends on the sources and on the version of SDCC (4.2.0) alone: a
test rebuilds the cartridge and compares it, byte for byte, with ``starfall.gb``.
"""

import argparse
import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).resolve().parent
C_FILES = ("main", "rules", "picture")
ROM_SIZE = 0x8000
TITLE = b"STARFALL"
SHADES = {".": 0, "-": 1, "+": 2, "#": 3}
TILE = 8
COMPILE = ("sdcc", "-msm83", "--opt-code-size", "--Werror", "-c")
LINK = ("sdcc", "-msm83", "--no-std-crt0", "--code-loc", "0x0200", "--data-loc", "0xC100")


class BuildError(Exception):
    """The cartridge could not be built; the message says why."""


def build_rom() -> bytes:
    """Compile the game.

    Returns:
        The 32 KiB cartridge image, header included.

    Raises:
        BuildError: SDCC is not installed or refuses the sources.
    """
    if shutil.which("sdcc") is None:
        raise BuildError("sdcc not found: install SDCC 4.2 (Debian: apt install sdcc)")
    with tempfile.TemporaryDirectory(prefix="starfall-") as name:
        folder = Path(name)
        (folder / "tiles.h").write_text(tiles_header((SOURCE / "tiles.txt").read_text()))
        shutil.copy(SOURCE / "game.h", folder)
        shutil.copy(SOURCE / "crt0.s", folder)
        _run(folder, "sdasgb", "-o", "crt0.rel", "crt0.s")
        for part in C_FILES:
            shutil.copy(SOURCE / f"{part}.c", folder)
            _run(folder, *COMPILE, f"{part}.c")
        objects = ["crt0.rel", *(f"{part}.rel" for part in C_FILES)]
        _run(folder, *LINK, *objects, "-o", "starfall.ihx")
        return with_header(image_from_hex((folder / "starfall.ihx").read_text()))


def tiles_header(pictures: str) -> str:
    """Turn the drawn tiles into a C header.

    Args:
        pictures: The text of ``tiles.txt``.

    Returns:
        C source: one ``TILE_<NAME>`` constant per strip and the array ``tile_data``.
    """
    names: list[str] = []
    data: list[int] = []
    for strip in pictures.split("\n= ")[1:]:
        name, *lines = strip.splitlines()
        rows = [line for line in lines if line and not line.startswith(";")]
        names.append(f"#define TILE_{name.upper()} {len(data) // 16}")
        for left in range(0, len(rows[0]), TILE):
            for row in rows:
                data += _bit_planes(row[left : left + TILE])
    values = ",".join(map(str, data))
    return "\n".join([*names, f"static const uint8_t tile_data[] = {{{values}}};", ""])


def image_from_hex(text: str) -> bytearray:
    """Read Intel HEX into a cartridge image.

    Args:
        text: The linker's output, data records (type 0) and an end record.

    Returns:
        The image, 0xFF where nothing is placed.

    Raises:
        BuildError: A record lies outside the cartridge.
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


def with_header(image: bytearray) -> bytes:
    """Fill in the cartridge header (0x104 to 0x14F).

    Args:
        image: A 32 KiB image with its code in place.

    Returns:
        The finished cartridge, with both checksums.
    """
    image[0x104:0x150] = bytes(0x150 - 0x104)
    image[0x134 : 0x134 + len(TITLE)] = TITLE
    image[0x14A], image[0x14B] = 0x01, 0x33
    header_sum = 0
    for byte in image[0x134:0x14D]:
        header_sum = (header_sum - byte - 1) & 0xFF
    image[0x14D] = header_sum
    image[0x14E:0x150] = (sum(image) & 0xFFFF).to_bytes(2, "big")
    return bytes(image)


def main() -> int:
    """Build the cartridge and print what belongs into ``manifest.toml``.

    Returns:
        The exit status: 0, or 2 when the cartridge could not be built.
    """
    parser = argparse.ArgumentParser(description="Build the Starfall cartridge with SDCC.")
    parser.add_argument("--output", type=Path, default=SOURCE / "starfall.gb")
    output: Path = parser.parse_args().output
    try:
        rom = build_rom()
        output.write_bytes(rom)
    except (BuildError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f'sha1 = "{hashlib.sha1(rom, usedforsecurity=False).hexdigest()}"')
    print(f'sha256 = "{hashlib.sha256(rom).hexdigest()}"')
    return 0


def _bit_planes(pixels: str) -> tuple[int, int]:
    low = high = 0
    for pixel in pixels.ljust(TILE, "."):
        low = low << 1 | SHADES[pixel] & 1
        high = high << 1 | SHADES[pixel] >> 1
    return low, high


def _run(folder: Path, *command: str) -> None:
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        reason = " / ".join((result.stderr + result.stdout).split("\n")[:3]).strip(" /")
        raise BuildError(f"{command[0]} failed: {reason}")


if __name__ == "__main__":
    sys.exit(main())
