"""A user's file is a cartridge, or one line says why not; a large file is not read."""

from __future__ import annotations

import hashlib
import os
import tracemalloc
from pathlib import Path

import pytest

from rtagent.env.gameboy.rom import BUNDLED
from rtagent.env.gameboy.rom_file import (
    HEADER_CHECKSUM,
    header_checksum,
    header_fault,
    header_title,
    padded,
    read_rom,
)
from rtagent.errors import UserError

IMAGE = (BUNDLED / "starfall" / "starfall.gb").read_bytes()


def changed(offset: int, value: int, *, mend: bool = False) -> bytes:
    image = bytearray(IMAGE)
    image[offset] = value
    if mend:
        image[HEADER_CHECKSUM] = header_checksum(image)
    return bytes(image)


@pytest.mark.parametrize("length", [len(IMAGE), 0x4123])
def test_a_cartridge_keeps_its_name_and_is_filled_up_for_the_machine(
    tmp_path: Path, length: int
) -> None:
    """Some free games' files leave out the part that they do not use."""
    path = tmp_path / "any.name"
    path.write_bytes(IMAGE[:length])
    rom = read_rom(path)
    assert (rom.image, rom.title) == (IMAGE[:length], "STARFALL")
    assert rom.sha1 == hashlib.sha1(rom.image, usedforsecurity=False).hexdigest()
    assert padded(rom.image) == IMAGE[:length] + b"\xff" * (0x8000 - length)


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        (b"", "0 bytes, and its header ends at 336"),
        (IMAGE[:0x14F], "335 bytes"),
        (bytes(0x8000), "checksum is 0x00, it should be 0xe7"),
        (changed(0x134, 0x54), "header's checksum"),
        (changed(0x148, 1, mend=True), "cut short: 32768 of 65536 bytes"),
        (changed(0x148, 0x52, mend=True), "unknown size"),
    ],
)
def test_what_is_none_is_refused(tmp_path: Path, image: bytes, reason: str) -> None:
    path = tmp_path / "none.gb"
    path.write_bytes(image)
    with pytest.raises(UserError, match="is no Game Boy cartridge") as caught:
        read_rom(path)
    assert reason in str(caught.value)
    assert header_fault(IMAGE) == ""


def test_ten_gigabytes_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "film.gb"
    with path.open("wb") as file:
        file.truncate(10 * 10**9)
    tracemalloc.start()
    with pytest.raises(UserError, match="10000000000 bytes, and 8388608 are the most"):
        read_rom(path)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def test_no_file_a_folder_a_pipe_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="cannot read the cartridge"):
        read_rom(tmp_path / "none.gb")
    for path in (tmp_path, tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(UserError, match=r"not a regular file|Is a directory"):
            read_rom(path)


def test_titles_of_later_cartridges_end_before_the_colour_flag() -> None:
    image = bytearray(IMAGE)
    image[0x134:0x144] = b"A LONG GAME BOY\x80"
    assert header_title(bytes(image)) == "A LONG GAME BOY"
    image[0x134:0x144] = b"ODD\x1b\xff" + bytes(11)
    assert header_title(bytes(image)).startswith("ODD?")
