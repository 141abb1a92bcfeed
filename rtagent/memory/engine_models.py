"""Models that the converter made of published weights, for all inference processes.

Why it is correct. A model is a string of bytes in a `DoubleBuffer` of three copies, with a header
that says how long it is, what it was made from, and its CRC32. A reader copies it, asks whether it
was lapped, and compares the CRC32, so no engine is ever given a model that is not whole. The
converter alone writes. A header without bytes says that torch shall act.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from rtagent.memory.double_buffer import DoubleBuffer
from rtagent.memory.records import Layout, whole_cache_lines

ENGINES = ("torch", "openvino", "onnxruntime")
"""A header names an engine by its place here."""
Precision = Literal["float32", "bfloat16", "int8"]
PRECISIONS: tuple[Precision, ...] = ("float32", "bfloat16", "int8")
COPIES = 3
CONTROL_BYTES = 512
HEADROOM_BYTES = 4 << 20
"""Room for what a model has beside its weights."""

_HEADERS_AT = 64

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class ModelInfo:
    """What a model says about itself.

    Attributes:
        version: of the weights that it was made from.
        updates: gradient steps behind them.
        engine: place in `ENGINES`.
        precision: place in `PRECISIONS`.
        size: bytes, as `publish` counts them; 0: torch shall act.
        checksum: the CRC32 of the bytes; `publish` computes it.
        agreement: share of recent frames on which its action is that of torch, 0 to 1.
    """

    version: int
    updates: int
    engine: int = 0
    precision: int = 0
    size: int = 0
    checksum: int = 0
    agreement: float = 1.0


_INFO = Layout(ModelInfo)


class EngineModels(DoubleBuffer):
    """The newest model.

    Args:
        buffer: `EngineModels.size(parameters)` bytes; zeroed, nothing is published.
        parameters: values of the network.

    Attributes:
        capacity: bytes that a model may have.
    """

    def __init__(self, buffer: memoryview, parameters: int) -> None:
        super().__init__(buffer[:CONTROL_BYTES], COPIES)
        self._headers = buffer[_HEADERS_AT:CONTROL_BYTES]
        self.capacity = _capacity(parameters)
        self._models = [
            np.frombuffer(buffer, np.uint8, self.capacity, CONTROL_BYTES + copy * self.capacity)
            for copy in range(COPIES)
        ]

    @staticmethod
    def size(parameters: int) -> int:
        """Bytes for models of networks with that many values."""
        return CONTROL_BYTES + COPIES * _capacity(parameters)

    def publish(self, model: Bytes, info: ModelInfo) -> None:
        """Replace the model. Only the converter.

        Args:
            model: (size,), at most `capacity`.
            info: what the model says about itself.
        """
        if len(model) > self.capacity:
            raise ValueError(f"a model of {len(model)} bytes in a place of {self.capacity}")
        copy = self.begin()
        self._models[copy][: len(model)] = model
        info = replace(info, size=len(model), checksum=zlib.crc32(model.data))
        _INFO.store(self._headers, copy * _INFO.size, info)
        self.finish()

    def read(self) -> tuple[ModelInfo, Bytes] | None:
        """A copy of the newest model; None if there is none, or each attempt was lapped."""
        return self.read_by(self._copied)

    def _copied(self, copy: int) -> tuple[ModelInfo, Bytes] | None:
        info = _INFO.load(self._headers, copy * _INFO.size)
        if not 0 <= info.size <= self.capacity:
            return None
        model = np.empty(info.size, np.uint8)
        np.copyto(model, self._models[copy][: info.size])
        return (info, model) if zlib.crc32(model.data) == info.checksum else None


def _capacity(parameters: int) -> int:
    return whole_cache_lines(4 * parameters + HEADROOM_BYTES)
