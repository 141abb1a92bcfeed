"""The action slots: each inference process writes the actions it computed, the environment reads.

Why it is correct. Each inference process has its own row of slots and is the only one to write
them. The slot for tick k is slot k mod `SLOTS` of the row. The writer sets the slot's stamp to -1,
fills it with its CRC32, and then sets the stamp to k, with a fence between each two of these steps
(`ordering.py`): a writer killed inside leaves a slot that the environment skips. A reader that has
seen the stamp k copies the slot and checks the CRC of k and the copy, so it never executes half an
action, nor one for another tick. Slots are never cleared: the stamp alone says for which tick a
slot is, however long ago that was. Each action of a chunk has a slot of its own; a newer chunk of
the same process replaces the actions of the ticks that both cover.

The stamps lie apart from the slots, without gaps: to look for a late action the environment reads
those of all ticks since the newest frame that was acted on, and may not take long for it.

It is no `StampedRing`: there is no newest action that could announce the others, since a process
may deposit for a tick before the last one; and the environment looks at one column of all rows.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rtagent.clock import NANO
from rtagent.config import MAX_INFERENCE_PROCESSES
from rtagent.memory import ordering
from rtagent.memory.arena import private_memory
from rtagent.memory.blueprint import Blueprint
from rtagent.memory.pending import PendingActions, pending_field
from rtagent.staggering.arbiter import Deposited

SLOTS = 1024
"""Slots of one process: the longest delay, in ticks, between an observation and its execution."""
LONGEST_CHUNK = SLOTS // 4
"""Actions of one inference that are kept at most."""

_STAMP = struct.Struct("<q")
_BODY = struct.Struct("<qqifi")
_VERSION_MASK = 0x7FFFFFFF
"""Bits of a version that are kept: a thousand publications a second need 25 days to fill them."""
_CRC = struct.Struct("<I")
_ACTION_AT = _BODY.size + _CRC.size
_COUNT = MAX_INFERENCE_PROCESSES * SLOTS


class ActionSlots:
    """All action slots.

    Args:
        buffer: `ActionSlots.size(...)` writable bytes.
        blueprint: the action's shape and type.
    """

    def __init__(self, buffer: memoryview, blueprint: Blueprint) -> None:
        self._buffer = buffer
        self._action_dtype = np.dtype(blueprint.action_dtype).newbyteorder("<")
        self._action_shape = blueprint.action_shape
        self._pending = PendingActions.of(blueprint)
        dtype = _slot_dtype(blueprint)
        self._slot_bytes = dtype.itemsize
        self._pending_at = _ACTION_AT + dtype["action"].itemsize
        self._end = self._pending_at
        if self._pending is not None:
            self._end += self._pending.dtype.itemsize
        slots = np.frombuffer(buffer, dtype, _COUNT, _STAMP.size * _COUNT)
        self._slots = slots.reshape(MAX_INFERENCE_PROCESSES, SLOTS)
        # Stored through numpy: `struct.pack_into` zeroes a word before it writes it.
        self._ticks = np.frombuffer(buffer, "<i8", _COUNT).reshape(self._slots.shape)
        self._frames = self._slots["frame"]
        self.rows = MAX_INFERENCE_PROCESSES

    @classmethod
    def private(cls, blueprint: Blueprint) -> ActionSlots:
        """Empty slots that only this process uses."""
        memory = private_memory(cls.size(blueprint))
        cls.format(memory)
        return cls(memory, blueprint)

    @staticmethod
    def size(blueprint: Blueprint) -> int:
        """Bytes of all slots."""
        return _COUNT * (_STAMP.size + _slot_dtype(blueprint).itemsize)

    @staticmethod
    def format(buffer: memoryview) -> None:
        """Mark all slots as empty."""
        np.frombuffer(buffer, "<i8", _COUNT)[:] = -1

    def limit(self, rows: int) -> None:
        """Look only at the first `rows` processes from now on: fewer slots to read per tick."""
        self.rows = min(max(rows, 1), MAX_INFERENCE_PROCESSES)

    def deposit(self, item: Deposited) -> None:
        """Write an action. Only inference process `item.worker`."""
        column = item.tick % SLOTS
        at = self._offset(item.worker, item.tick)
        content = self.encode(item)
        self._ticks[item.worker, column] = -1
        ordering.fence()
        self._buffer[at : at + self._end] = content
        ordering.fence()
        self._ticks[item.worker, column] = item.tick

    def encode(self, item: Deposited) -> bytes:
        """What a slot holds behind its stamp."""
        body = _BODY.pack(
            item.frame, round(item.registered_at * NANO), item.version & _VERSION_MASK,
            item.log_probability, item.position,
        )
        action = np.asarray(item.action, self._action_dtype).tobytes()
        if self._pending is not None:
            action += self._pending.encoded(item.pending)
        crc = zlib.crc32(_STAMP.pack(item.tick) + body + action)
        return body + _CRC.pack(crc) + action

    def at(self, tick: int) -> Sequence[Deposited]:
        """The whole deposits for exactly this tick."""
        stamps = self._ticks[: self.rows, tick % SLOTS]
        workers = np.flatnonzero(stamps == tick)
        found = [self._read(int(worker), tick) for worker in workers]
        return [item for item in found if item is not None]

    def late(self, tick: int, newer_than_frame: int) -> Deposited | None:
        """The newest deposit that was meant for an earlier tick, from a newer frame than given."""
        # It is for a tick after its frame.
        first = max(newer_than_frame + 2, 0)
        columns = np.arange(max(first, tick - SLOTS), tick) % SLOTS
        ticks = self._ticks[: self.rows, columns]
        workers, found = np.nonzero((ticks >= first) & (ticks < tick))
        ticks, frames = ticks[workers, found], self._frames[workers, columns[found]]
        order = np.lexsort((ticks, frames))[::-1]
        for worker, late in zip(workers[order].tolist(), ticks[order].tolist(), strict=True):
            item = self._read(worker, late)
            if item is not None and item.frame > newer_than_frame:
                return item
        return None

    def frames_of(
        self, workers: npt.NDArray[np.intp], ticks: npt.NDArray[np.int64],
        registered_ns: npt.NDArray[np.int64],
    ) -> npt.NDArray[np.int64]:
        """The frames that registered actions were computed from; -1 where a slot was replaced."""
        columns = ticks % SLOTS
        whole = self._ticks[workers, columns] == ticks
        ordering.fence()
        slots = self._slots[workers, columns]
        ordering.fence()
        whole &= self._ticks[workers, columns] == ticks
        whole &= slots["registered_ns"] == registered_ns
        return np.where(whole, slots["frame"], -1)

    def _offset(self, worker: int, tick: int) -> int:
        return _STAMP.size * _COUNT + (worker * SLOTS + tick % SLOTS) * self._slot_bytes

    def _read(self, worker: int, tick: int) -> Deposited | None:
        ordering.fence()
        at = self._offset(worker, tick)
        raw = bytes(self._buffer[at : at + self._end])
        (crc,) = _CRC.unpack_from(raw, _BODY.size)
        body = _STAMP.pack(tick) + raw[: _BODY.size]
        if zlib.crc32(raw[_ACTION_AT:], zlib.crc32(body)) != crc:
            return None
        frame, registered_ns, version, log_probability, position = _BODY.unpack_from(raw)
        pending = None if self._pending is None else self._pending.decoded(raw[self._pending_at :])
        taken = raw[_ACTION_AT : self._pending_at]
        values: npt.NDArray[Any] = np.frombuffer(taken, self._action_dtype)
        value = values.reshape(self._action_shape) if self._action_shape else int(values[0])
        return Deposited(
            worker, frame, tick, value, version, registered_ns / NANO, log_probability,
            pending, position,
        )


def _slot_dtype(blueprint: Blueprint) -> np.dtype[Any]:
    action = (np.dtype(blueprint.action_dtype).newbyteorder("<"), blueprint.action_shape)
    fields = [
        ("frame", "<i8"), ("registered_ns", "<i8"), ("version", "<i4"), ("log_probability", "<f4"),
        ("position", "<i4"), ("crc", "<u4"), ("action", *action), *pending_field(blueprint),
    ]
    return np.dtype(fields, align=True)
