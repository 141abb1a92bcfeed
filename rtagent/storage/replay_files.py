"""The files of a saved replay: arrays, compressed, behind a header and before a CRC32.

Why it is correct. A file is there whole or not at all (`atomic_write.py`). A CRC32 over everything
finds what the disk did to it later, before any of it is used.

Not a zip file, because zstd is what counts: 4096 frames of Starfall take 0.25 MB, and 6 ms to read;
in a zip (deflate, level 1) 1.3 MB and 55 ms.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import zstandard

from rtagent.errors import reason_of
from rtagent.files.atomic_write import atomic_write
from rtagent.files.regular_file import read_regular
from rtagent.memory.frames import FrameRing
from rtagent.storage.signature import Signature

FORMAT = 2
SUFFIX = ".chunk"
PIECE_BYTES = 1 << 20
"""Bytes of the frames that are copied at a time."""
DRAFT = ".replay-"
"""Beginning of the name of a file that is not whole yet."""

COMMON = ("environment", "observation", "action")
"""What a saved replay and a run must have in common: everything but the network."""

Header = Mapping[str, str | int]

_LAST_TICK = 2**62
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_FOREIGN = "of another format, or of something else"
_MAGIC = b"rtreplay"
_HEAD = struct.Struct("<8sI")
_CRC = struct.Struct("<I")


class Corrupt(Exception):
    """A file is not what it should be; the message says why."""


@dataclass(frozen=True)
class Chunk:
    """A file that holds something of a range of ticks.

    Attributes:
        file: its name.
        first: the first tick in it.
        stop: one past the last.
        bytes: its size on the disk.
    """

    file: str
    first: int
    stop: int
    bytes: int

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Chunk:
        """The chunk that a manifest describes.

        Raises:
            ValueError: the name is not a chunk's plain name, or a number is wrong.
            TypeError: a value is missing, or there are too many.
        """
        chunk, name = cls(**values), values["file"]
        if not isinstance(name, str) or not _PLAIN.fullmatch(name) or not name.endswith(SUFFIX):
            raise ValueError(f"{str(name)[:80]!r} is no file of a replay")
        for number in (chunk.first, chunk.stop, chunk.bytes):
            if type(number) is not int or not 0 <= number < _LAST_TICK:
                raise ValueError(f"{chunk.file}: a number is wrong")
        return chunk


@contextmanager
def new_file(path: Path, about: Header) -> Iterator[Callable[[npt.NDArray[Any]], None]]:
    """Gives a function that appends an array; the file appears when the block ends without error.

    Args:
        about: the header, which `Reader.has` compares.

    Raises:
        OSError: it cannot be written.
    """
    compressor = zstandard.ZstdCompressor(level=1).compressobj()
    text = json.dumps(about).encode()
    crc = 0

    with atomic_write(path, DRAFT) as write:

        def put(content: bytes) -> None:
            nonlocal crc
            crc = zlib.crc32(content, crc)
            write(content)

        put(_HEAD.pack(_MAGIC, len(text)) + text)
        yield lambda values: put(compressor.compress(_bytes(values)))
        put(compressor.flush())
        write(_CRC.pack(crc))


class Reader:
    """Takes arrays out of a file in the order in which they were put there.

    Args:
        size: its bytes.

    Attributes:
        about: its header.

    Raises:
        Corrupt: it is gone, damaged, or something else.
    """

    def __init__(self, path: Path, size: int) -> None:
        try:
            content = memoryview(read_regular(path, size))
        except OSError as error:
            raise Corrupt(reason_of(error)) from error
        except MemoryError:
            raise Corrupt(f"there is no memory for {size} bytes") from None
        body, tail = content[: -_CRC.size], content[-_CRC.size :]
        if len(body) < _HEAD.size or _CRC.unpack(tail)[0] != zlib.crc32(body):
            raise Corrupt("wrong checksum")
        magic, length = _HEAD.unpack_from(body)
        start = _HEAD.size + length
        if magic != _MAGIC:
            raise Corrupt("not a file of a replay")
        try:
            found = json.loads(bytes(body[_HEAD.size : start]))
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise Corrupt(_FOREIGN)
        self.about: Header = found
        self._stream = zstandard.ZstdDecompressor().stream_reader(body[start:])

    def has(self, about: Header) -> bool:
        """Whether its header is this one; False if it has something else of each tick.

        Raises:
            Corrupt: it is that of another file.
        """
        if {**self.about, "row": about["row"]} != about:
            raise Corrupt(_FOREIGN)
        return self.about == about

    def take(self, dtype: npt.DTypeLike, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        """The next array.

        Raises:
            Corrupt: the file holds less.
        """
        values = np.empty(shape, dtype)
        rest = _bytes(values)
        while rest:
            try:
                count = self._stream.readinto(rest)
            except zstandard.ZstdError as error:
                raise Corrupt(str(error)) from error
            if not count:
                raise Corrupt("it ends too early")
            rest = rest[count:]
        return values


def common(signature: Signature) -> dict[str, str]:
    """What a saved replay and a run must have in common, see `COMMON`."""
    return {name: getattr(signature, name) for name in COMMON}


def header(signature: Signature, first: int, stop: int, row: str = "") -> Header:
    """The header of a file with the ticks first <= k < stop; `row`: what it has of each."""
    return {"format": FORMAT, **common(signature), "first": first, "stop": stop, "row": row}


def digest(values: npt.NDArray[Any]) -> str:
    """Sixteen hexadecimal digits, which hardly two arrays have in common."""
    return hashlib.blake2b(_bytes(values), digest_size=8).hexdigest()


def piece_ticks(frames: FrameRing) -> int:
    """How many frames are copied at a time."""
    return max(1, PIECE_BYTES // frames.slot_bytes)


def _bytes(values: npt.NDArray[Any]) -> memoryview:
    """The memory of an array."""
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8).data
