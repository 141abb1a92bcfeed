"""Messages of the protocol: msgpack, with NumPy arrays as openpi's `msgpack_numpy` writes them.

An array is a map of `__ndarray__`, `data`, `dtype` and `shape`, with keys of bytes. Nothing is
unpickled: only arrays of numbers or booleans are accepted, of exactly as many bytes as their shape
says.
The protocol: https://github.com/Physical-Intelligence/openpi, packages/openpi-client.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, TypeGuard, TypeVar

import numpy as np

from rtagent.errors import UserError, first_line

try:
    import msgpack
except ImportError:
    raise UserError(
        "policy servers are asked and run with the package msgpack: pip install 'rtagent[remote]'"
    ) from None

Part = TypeVar("Part")

ARRAY, GENERIC, DATA, DTYPE, SHAPE = b"__ndarray__", b"__npgeneric__", b"data", b"dtype", b"shape"
KINDS = "biuf"
"""Kinds of elements that are accepted: booleans, integers, floats."""
MOST_DIMENSIONS = 8
MOST_PARTS = 1 << 14
"""Maps, lists and extensions in a message, and names in a map. One byte may be one of them, and to
read millions takes seconds, in which nobody else is answered and no heartbeat is sent."""

_NAME = re.compile(rf"[<>|=][{KINDS}][0-9]{{1,2}}")
"""Name of a type of elements: byte order, kind, and size in bytes."""


class ProtocolError(Exception):
    """The other side does not keep to the protocol; one line that says how."""


def encode(message: Mapping[str, Any]) -> bytes:
    """A message as bytes; its arrays must be of numbers or booleans."""
    encoded: bytes = msgpack.packb(message, default=_packed)
    return encoded


def decode(data: bytes | str) -> dict[str, Any]:
    """A message from bytes that need not be trusted; its arrays are read-only.

    Raises:
        ProtocolError: the bytes are no message. A text is the other side's error, whose last line
            is quoted.
    """
    if isinstance(data, str):
        lines = data.strip().splitlines()
        raise ProtocolError(f"the server says: {lines[-1][:200] if lines else 'an error'}")
    try:
        parts = _Parts()
        message = msgpack.unpackb(
            data, object_hook=parts.take_map, list_hook=parts.take_list,
            ext_hook=parts.take_extension, max_map_len=MOST_PARTS, timestamp=1,
        )
    except ProtocolError:
        raise
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise ProtocolError(f"no msgpack message: {first_line(error)[:200]}") from None
    if not isinstance(message, dict) or not all(isinstance(key, str) for key in message):
        raise ProtocolError("the message is no map with names")
    return message


def _packed(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        if value.dtype.kind not in KINDS:
            raise ValueError(f"an array of {value.dtype} cannot be sent")
        if isinstance(value, np.generic):
            return {GENERIC: True, DATA: value.item(), DTYPE: value.dtype.str}
        return {
            ARRAY: True, DATA: value.tobytes(), DTYPE: value.dtype.str, SHAPE: list(value.shape)
        }
    raise TypeError(f"{type(value).__name__} cannot be sent")


class _Parts:
    """Takes the parts of one message, and raises `ProtocolError` if they are too many."""

    def __init__(self) -> None:
        self._left = MOST_PARTS

    def take_map(self, found: dict[Any, Any]) -> Any:
        return _unpacked(self._counted(found))

    def take_list(self, found: list[Any]) -> list[Any]:
        return self._counted(found)

    def take_extension(self, _: int, data: bytes) -> bytes:
        return self._counted(data)

    def _counted(self, part: Part) -> Part:
        self._left -= 1
        if self._left < 0:
            raise ProtocolError(f"the message has more than {MOST_PARTS} parts")
        return part


def _unpacked(found: dict[Any, Any]) -> Any:
    if ARRAY in found:
        return _array(found.get(DATA), _dtype(found), found.get(SHAPE))
    if GENERIC in found:
        value = found.get(DATA)
        if not isinstance(value, bool | int | float):
            raise ProtocolError("a number in the message is none")
        with np.errstate(over="ignore", invalid="ignore"):
            return np.array(value).astype(_dtype(found))[()]
    return found


def _dtype(found: dict[Any, Any]) -> np.dtype[Any]:
    name = found.get(DTYPE)
    # NumPy would read more than such names: lists of fields, and text with commas.
    if isinstance(name, str) and _NAME.fullmatch(name):
        try:
            return np.dtype(name)
        except TypeError:
            pass
    raise ProtocolError(f"an array of {str(name)[:40]!r} is not taken")


def is_shape(said: Any) -> TypeGuard[list[int]]:
    """Whether something in a message is the shape of an array."""
    return isinstance(said, list) and len(said) <= MOST_DIMENSIONS and all(
        type(side) is int and 0 <= side <= 1 << 40 for side in said
    )


def _array(data: Any, dtype: np.dtype[Any], shape: Any) -> np.ndarray[Any, Any]:
    if not is_shape(shape) or not isinstance(data, bytes):
        raise ProtocolError("an array without data or shape")
    if math.prod(shape) * dtype.itemsize != len(data):
        raise ProtocolError(f"an array of the shape {shape} with {len(data)} bytes")
    array: np.ndarray[Any, Any] = np.frombuffer(data, dtype).reshape(shape)
    return array
