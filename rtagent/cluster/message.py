"""Messages between a buffer node and the learner: named arrays and a few values, as bytes.

A message is one block of bytes, so its size is what the link carries, and reading it runs nothing:
a header in JSON, then the arrays one after the other, each at a multiple of 64 bytes.
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
"""Elements that may travel, as numpy names them: no objects, and no word for numpy to interpret."""


class MessageError(UserError):
    """Bytes that are no message."""


class Kind(NamedTuple):
    """What an array is like.

    Attributes:
        dtype: of its elements.
        shape: of the array.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]


class Message(NamedTuple):
    """What is said.

    Attributes:
        values: plain JSON values.
        arrays: by name; read-only where they were read from bytes.
    """

    values: dict[str, Any]
    arrays: dict[str, Array]


def pack(values: Mapping[str, Any], arrays: Mapping[str, Array]) -> Bytes:
    """A message as bytes (n,).

    Args:
        values: what JSON can say.
        arrays: of numbers or truth values, in one block each or not.
    """
    kinds = {name: Kind(each.dtype, each.shape) for name, each in arrays.items()}
    block, places = lay_out(values, kinds)
    for name, each in arrays.items():
        places[name][...] = each
    return block


def lay_out(
    values: Mapping[str, Any], kinds: Mapping[str, Kind]
) -> tuple[Bytes, dict[str, Array]]:
    """A message whose arrays are still to be filled: its bytes (n,), and the arrays in them.

    Args:
        values: what JSON can say.
        kinds: of the arrays, by name.
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
        MessageError: these bytes are none.
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
            raise ValueError(f"an array {name!r} that ends behind the last byte")
        arrays[name] = block[at : at + size].view(dtype).reshape(shape)
        arrays[name].flags.writeable = False
        at = _aligned(at + size)
    if not isinstance(values, dict):
        raise ValueError("values without names")
    return Message(values, arrays)


def _aligned(at: int) -> int:
    return -(-at // ALIGNMENT) * ALIGNMENT
