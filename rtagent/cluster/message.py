"""Messages between a buffer node and the learner: named arrays and a few values, as bytes.

A message is one block of bytes: a header in JSON, then the arrays one after the other, each at a
multiple of 64 bytes. So its length is what the link carries, and reading it executes no code.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rtagent.errors import UserError

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]

ALIGNMENT = 64
LENGTH_BYTES = 8
KINDS = {"|b1", "|u1", "<i4", "<i8", "<f4", "<f8"}
"""Types of elements that are accepted, as NumPy names them. No other name reaches NumPy, which
reads some names as objects or as lists of fields."""


class MessageError(UserError):
    """These bytes are not a message."""


class Kind(NamedTuple):
    """Type and shape of an array.

    Attributes:
        dtype: of the elements.
        shape: of the array.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]


class Message(NamedTuple):
    """A message that was read.

    Attributes:
        values: JSON values by name.
        arrays: read-only arrays by name.
    """

    values: dict[str, Any]
    arrays: dict[str, Array]


def pack(values: Mapping[str, Any], arrays: Mapping[str, Array]) -> Bytes:
    """Write a message as bytes (n,).

    Args:
        values: values that JSON can express.
        arrays: arrays of numbers or booleans; they need not be contiguous.
    """
    kinds = {name: Kind(each.dtype, each.shape) for name, each in arrays.items()}
    block, places = lay_out(values, kinds)
    for name, each in arrays.items():
        places[name][...] = each
    return block


def lay_out(
    values: Mapping[str, Any], kinds: Mapping[str, Kind]
) -> tuple[Bytes, dict[str, Array]]:
    """Lay out a message whose arrays the caller fills afterwards.

    Args:
        values: values that JSON can express.
        kinds: type and shape of each array, by name.

    Returns:
        The bytes (n,) of the message, and its arrays as views of them.
    """
    described = [[name, each.dtype.str, list(each.shape)] for name, each in kinds.items()]
    header = json.dumps([dict(values), described], separators=(",", ":")).encode()
    at = _aligned(LENGTH_BYTES + len(header))
    spans, gaps = [], [(LENGTH_BYTES + len(header), at)]
    for each in kinds.values():
        end = at + each.dtype.itemsize * math.prod(each.shape)
        spans.append((at, end))
        at = _aligned(end)
        gaps.append((end, at))
    block = np.empty(at, np.uint8)
    for end, start in gaps:
        block[end:start] = 0
    block[:LENGTH_BYTES].view("<u8")[0] = len(header)
    block[LENGTH_BYTES : LENGTH_BYTES + len(header)] = np.frombuffer(header, np.uint8)
    places = {
        name: block[start:end].view(each.dtype).reshape(each.shape)
        for (name, each), (start, end) in zip(kinds.items(), spans, strict=True)
    }
    return block, places


def unpack(block: Bytes) -> Message:
    """Read a message; its arrays are views of the bytes.

    Raises:
        MessageError: the bytes are not a message.
    """
    try:
        return _unpack(block)
    except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        raise MessageError(f"{len(block)} bytes that are no message: {error}") from error


def _unpack(block: Bytes) -> Message:
    length = int(block[:LENGTH_BYTES].view("<u8")[0])
    if length > len(block) - LENGTH_BYTES:
        raise ValueError(f"a header of {length} bytes")
    values, described = json.loads(bytes(block[LENGTH_BYTES : LENGTH_BYTES + length]))
    at, arrays = _aligned(LENGTH_BYTES + length), {}
    for name, kind, shape in described:
        if kind not in KINDS or any(not isinstance(n, int) or n < 0 for n in shape):
            raise ValueError(f"an array {name!r} of {kind!r}, {shape!r}")
        dtype = np.dtype(kind)
        size = dtype.itemsize * int(np.prod(shape, dtype=object))
        if at + size > len(block):
            raise ValueError(f"an array {name!r} that ends after the last byte")
        arrays[name] = block[at : at + size].view(dtype).reshape(shape)
        arrays[name].flags.writeable = False
        at = _aligned(at + size)
    if not isinstance(values, dict):
        raise ValueError("values without names")
    return Message(values, arrays)


def _aligned(at: int) -> int:
    return -(-at // ALIGNMENT) * ALIGNMENT
