"""Users' files: whether a file is a Game Boy cartridge, and which.

Such a file may be anything: empty, a film, a pipe that never ends. It is read up to a limit, and
refused unless a Game Boy itself would start it, for the emulator checks nothing.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from rtagent.errors import UserError
from rtagent.files.regular_file import read_regular

HEADER_CHECKSUM = 0x14D
"""The address of the header's checksum."""
SMALLEST, LARGEST = 0x8000, 0x800000
"""Bytes of the smallest and of the largest cartridge ever made. A file may be smaller, where it
leaves out the part that its game does not use."""
HEADER_END = 0x150

_TITLE = slice(0x134, 0x144)
_COLOUR_FLAG = 0x143
_SIZE_CODE = 0x148
_CHECKED = slice(0x134, 0x14D)


@dataclass(frozen=True)
class RomFile:
    """A Game Boy cartridge.

    Attributes:
        image: the whole file.
        title: the title in its header.
        sha1: of the image, lower-case hex.
    """

    image: bytes
    title: str
    sha1: str


def read_rom(path: Path) -> RomFile:
    """Read a cartridge and check its header; a UserError says why the file is not one."""
    try:
        image = read_regular(path, LARGEST)
    except OSError as error:
        raise UserError(f"cannot read the cartridge {path}: {error.strerror}") from None
    fault = header_fault(image)
    if fault:
        raise UserError(f"{path} is no Game Boy cartridge: {fault}")
    sha1 = hashlib.sha1(image, usedforsecurity=False).hexdigest()
    return RomFile(image, header_title(image), sha1)


def header_title(image: bytes) -> str:
    """The title in the header of a cartridge."""
    raw = image[_TITLE]
    if image[_COLOUR_FLAG] & 0x80:
        raw = raw[:-1]
    text = raw.split(b"\0")[0].decode("ascii", "replace")
    return "".join(each if each.isprintable() else "?" for each in text).strip()


def header_fault(image: bytes) -> str:
    """Why a Game Boy would not start this image; empty if it would."""
    if len(image) < HEADER_END:
        return f"{len(image)} bytes, and its header ends at {HEADER_END}"
    total = header_checksum(image)
    if total != image[HEADER_CHECKSUM]:
        return f"its header's checksum is {image[HEADER_CHECKSUM]:#04x}, it should be {total:#04x}"
    code = image[_SIZE_CODE]
    if code > 8:
        return f"its header gives an unknown size ({code:#04x})"
    if code and len(image) < SMALLEST << code:
        return f"cut short: {len(image)} of {SMALLEST << code} bytes"
    return ""


def padded(image: bytes) -> bytes:
    """The image in a cartridge's full size; the part left out reads as unwritten memory."""
    return image.ljust(SMALLEST, b"\xff")


def header_checksum(image: bytes | bytearray) -> int:
    """The byte that a Game Boy expects at `HEADER_CHECKSUM`."""
    return -sum(byte + 1 for byte in image[_CHECKED]) & 0xFF
