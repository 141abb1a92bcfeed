"""Dataclasses of integers and floats in shared memory: 8 bytes for each field, in order."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import fields
from operator import attrgetter
from typing import Any, Generic, TypeVar

import numpy as np

Record = TypeVar("Record")


class Layout(Generic[Record]):
    """Stores and loads records of one kind.

    Args:
        kind: a dataclass of at least two fields, each an integer or a float.

    Attributes:
        size: bytes of a record.
        values: of a record's fields, in order.
        dtype: of an array of records.
    """

    def __init__(self, kind: type[Record]) -> None:
        declared = fields(kind)  # type: ignore[arg-type]
        codes = ["d" if field.type in (float, "float") else "q" for field in declared]
        self._struct = struct.Struct("<" + "".join(codes))
        names = [field.name for field in declared]
        self.values: Callable[[Record], tuple[Any, ...]] = attrgetter(*names)
        self._kind = kind
        kinds = {"d": "<f8", "q": "<i8"}
        self.dtype = np.dtype([(n, kinds[code]) for n, code in zip(names, codes, strict=True)])
        self.size = self._struct.size

    def store(self, buffer: memoryview, at: int, record: Record) -> None:
        """Store a record from byte `at` on; a reader may find half of it."""
        self._struct.pack_into(buffer, at, *self.values(record))

    def load(self, buffer: memoryview, at: int) -> Record:
        """The record that begins at byte `at`."""
        return self._kind(*self._struct.unpack_from(buffer, at))
