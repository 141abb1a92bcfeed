"""Records of integers and floats in shared memory: 8 bytes for each field, in order.

`Layout` stores a whole record at once, and the structure around it says when the record is whole.
The fields of a `SharedRecord` are loaded and stored one by one.
"""

from __future__ import annotations

import inspect
import struct
from collections.abc import Callable
from operator import attrgetter
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

Record = TypeVar("Record")
WORD = 8
CACHE_LINE = 64
_FLOATS = (float, "float")


def whole_cache_lines(size: int) -> int:
    """Bytes of the fewest whole cache lines that hold `size` bytes."""
    return -(-size // CACHE_LINE) * CACHE_LINE


class Layout(Generic[Record]):
    """Stores and loads records of one kind.

    Args:
        kind: a dataclass of at least two fields, each an integer or a float.

    Attributes:
        size: bytes of a record.
        values: of a record's fields, in order.
        dtype: of an array of records; `return_` is called `return` there.
    """

    def __init__(self, kind: type[Record]) -> None:
        declared = kind.__annotations__
        codes = ["d" if each in _FLOATS else "q" for each in declared.values()]
        self._struct = struct.Struct("<" + "".join(codes))
        self.values: Callable[[Record], tuple[Any, ...]] = attrgetter(*declared)
        self._kind = kind
        names = [name.rstrip("_") for name in declared]
        self.dtype = np.dtype(list(zip(names, codes, strict=True)))
        self.size = self._struct.size

    def store(self, buffer: memoryview, at: int, record: Record) -> None:
        """Store a record from byte `at` on; a reader may find half of it."""
        self._struct.pack_into(buffer, at, *self.values(record))

    def load(self, buffer: memoryview, at: int) -> Record:
        """The record that begins at byte `at`."""
        return self._kind(*self._struct.unpack_from(buffer, at))


class SharedRecord:
    """A record in shared memory, of which each field is an attribute.

    A subclass declares its fields, `int` or `float`, behind those of its base. To get or set one is
    one aligned 8-byte load or store, so a reader finds no half of a value. A subclass that keeps
    lists or bells as well declares their bytes, `behind`, and finds them in `_rest`.

    Args:
        buffer: `size()` bytes or more, aligned to 8; writable for a process that sets attributes.
    """

    _names: ClassVar[tuple[str, ...]] = ()
    _behind: ClassVar[int] = 0

    def __init_subclass__(cls, behind: int = 0) -> None:
        declared = inspect.get_annotations(cls)
        for at, (name, kind) in enumerate(declared.items(), len(cls._names)):
            setattr(cls, name, _word(at, "_floats" if kind in _FLOATS else "_integers"))
        cls._names += tuple(declared)
        cls._behind = behind

    def __init__(self, buffer: memoryview) -> None:
        # An item store of a memoryview is one 8-byte store; `struct.pack_into` would zero it first.
        end = len(self._names) * WORD
        self._integers, self._floats = buffer[:end].cast("q"), buffer[:end].cast("d")
        self._rest = buffer[end:]

    @classmethod
    def size(cls) -> int:
        """Bytes of a record, with what it keeps behind its fields."""
        return len(cls._names) * WORD + cls._behind

    def values(self) -> dict[str, Any]:
        """The fields as they are now."""
        return {name: getattr(self, name) for name in self._names}


def _word(at: int, view: str) -> property:
    def load(record: SharedRecord) -> Any:
        return getattr(record, view)[at]

    def store(record: SharedRecord, value: float) -> None:
        getattr(record, view)[at] = value

    return property(load, store)
