"""TensorBoard's event files.

An event file is a row of records: length, checksum of the length, message, checksum of the message
(the TFRecord format; CRC-32C, rotated and shifted). The message is the protocol buffer `Event` of
`tensorboard/compat/proto/event.proto`, of which three fields are needed here. No library writes the
files, for it would load torch in every run, and would not say at once that a disk is full.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from math import nan

VERSION = "brain.Event:2"

_POLYNOMIAL = 0x82F63B78
_MASK_DELTA = 0xA282EAD8
_WORD = 0xFFFFFFFF
_DOUBLE, _BYTES, _FLOAT = 1, 2, 5
"""Wire types of the fields that are written; 0 is a varint."""


def version_record(wall_time: float) -> bytes:
    """The first record of an event file; `wall_time` in seconds since 1970."""
    return _record(_field(1, _DOUBLE, struct.pack("<d", wall_time)) + _text(3, VERSION))


def scalar_record(wall_time: float, step: int, values: Mapping[str, float]) -> bytes:
    """Several scalars of one moment.

    Args:
        wall_time: seconds since 1970.
        step: their position on the horizontal axis, at least 0.
        values: by tag; `group/name` puts them into groups. Those beyond float32 become not a
            number, for which TensorBoard draws a mark.
    """
    summary = b"".join(
        _nested(1, _text(1, tag) + _field(2, _FLOAT, _float32(value)))
        for tag, value in values.items()
    )
    return _record(
        _field(1, _DOUBLE, struct.pack("<d", wall_time))
        + _field(2, 0, _varint(step))
        + _nested(5, summary)
    )


def _float32(value: float) -> bytes:
    try:
        return struct.pack("<f", value)
    except OverflowError:
        return struct.pack("<f", nan)


def _record(message: bytes) -> bytes:
    length = struct.pack("<Q", len(message))
    return length + _checksum(length) + message + _checksum(message)


def _field(number: int, wire_type: int, content: bytes) -> bytes:
    return _varint(number << 3 | wire_type) + content


def _nested(number: int, content: bytes) -> bytes:
    return _field(number, _BYTES, _varint(len(content)) + content)


def _text(number: int, text: str) -> bytes:
    return _nested(number, text.encode())


def _varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first; the eighth bit says that more follow."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _checksum(data: bytes) -> bytes:
    """CRC-32C, masked as in the TFRecord format, which may hold data with checksums."""
    crc = _WORD
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= _WORD
    return struct.pack("<I", ((crc >> 15 | crc << 17) + _MASK_DELTA) & _WORD)


_TABLE = list(range(256))
for _ in range(8):
    _TABLE = [crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0) for crc in _TABLE]
