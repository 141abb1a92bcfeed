"""The tick ledger: one row per tick, what really happened.

Why it is correct. It is a `StampedRing` that only the environment process writes; a row begins with
its stamp. Readers copy a range at once and drop the rows that did not hold. Each row also carries a
CRC32, and a reader drops a copy that does not fit it: the newest row may be written anew under its
old number (`truncate_episode`), and of that its stamp says nothing.
"""

from __future__ import annotations

import ctypes
import struct
import zlib
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from rtagent.memory.arena import private_memory
from rtagent.memory.blueprint import Blueprint
from rtagent.memory.compiled import compiled
from rtagent.memory.pending import PendingActions, pending_field
from rtagent.memory.policy_states import NOBODY, UNKNOWN_LAG, Beginning, state_field
from rtagent.memory.ring import CONTROL_BYTES, StampedRing
from rtagent.staggering.arbiter import Source

TERMINATED = 1
TRUNCATED = 2

Rows = npt.NDArray[np.void]
Ints = npt.NDArray[np.int64]

COLUMNS = [
    ("tick", "<i8"), ("observed", "<i8"), ("time_ns", "<i8"), ("registered_ns", "<i8"),
    ("lateness_ns", "<i8"), ("reward", "<f4"), ("weights_version", "<i4"), ("episode", "<i4"),
    ("worker", "<i2"), ("source", "u1"), ("flags", "u1"), ("log_probability", "<f4"),
    ("position", "<i4"), ("crc", "<u4"),
]
"""The fields that a row has in every run; the rest depend on its blueprint."""


def row_dtype(blueprint: Blueprint) -> np.dtype[Any]:
    """Layout of one row.

    Fields: `tick` (the stamp; its frame has the same number), `observed` (tick whose frame the
    action was computed from, -1 for the default behaviour), `time_ns` (when the tick happened,
    monotonic), `registered_ns` (when the action was registered; 0 for the default behaviour),
    `lateness_ns` (against the due time), `reward`, `weights_version` (-1 where no policy made the
    action, 0 where one did that has no weights of this run), `episode`, `worker` (-1 where no
    worker computed it), `source` (`Source`), `flags` (`TERMINATED`, `TRUNCATED`), `log_probability`
    (of the action, by the policy that drew it; 0 where nothing was drawn), `position` (of the
    action in the chunk that its inference answered; 0 of a single one), `crc`, `action`; `pending`
    in a run that has it (`memory/pending.py`): what the decision was told of the actions before its
    own; with a recurrent policy (`memory/policy_states.py`) `state_lag` (0: its inference began
    with zeros, -1: it is unknown), `state_worker` (that left the state; -1 if none did) and
    `state`: what its inference began with.

    No weights and no worker means the default behaviour if `source` says so, and a demonstration
    if `source` is `AGENT`.
    """
    action = (np.dtype(blueprint.action_dtype).newbyteorder("<"), blueprint.action_shape)
    fields = [
        *COLUMNS, ("action", *action), *pending_field(blueprint), *state_field(blueprint),
    ]
    return np.dtype(fields, align=True)


_STAMP = struct.Struct("<q")
_BODY = struct.Struct("<qqqqfiihBBfi")
_CRC = struct.Struct("<I")
_INTEGER = struct.Struct("<i")
_STATE_HEAD = struct.Struct("<ii")
_EPISODE_MASK = 0x7FFFFFFF
"""Bits of an episode's number that are kept: only that of the next episode must be another one."""


class Ledger(StampedRing):
    """The ring of rows.

    Args:
        buffer: `Ledger.size(...)` writable bytes.
        blueprint: the action's shape and type.
        capacity: rows.

    Attributes:
        pending: how its rows hold pending actions. If None, they hold none.
        state_size: numbers of a recurrent policy's state; 0: its rows hold none.
    """

    def __init__(self, buffer: memoryview, blueprint: Blueprint, capacity: int) -> None:
        self.dtype = row_dtype(blueprint)
        self._buffer = buffer
        self._rows = np.frombuffer(buffer, self.dtype, capacity, CONTROL_BYTES)
        super().__init__(buffer, self._rows["tick"])
        self._action_bytes = _encoder(blueprint)
        self.pending = PendingActions.of(blueprint)
        self.state_size = blueprint.state_size
        self._check = compiled("rtagent_intact")

    @classmethod
    def private(cls, blueprint: Blueprint, capacity: int) -> Ledger:
        """An empty ledger that only this process uses."""
        memory = private_memory(cls.size(blueprint, capacity))
        cls.format(memory)
        return cls(memory, blueprint, capacity)

    @staticmethod
    def size(blueprint: Blueprint, capacity: int) -> int:
        """Bytes for `capacity` rows."""
        return CONTROL_BYTES + capacity * row_dtype(blueprint).itemsize

    @staticmethod
    def arrays(blueprint: Blueprint) -> list[tuple[int, int]]:
        """Where the rows begin, and the bytes of each: the one array of slots."""
        return [(CONTROL_BYTES, row_dtype(blueprint).itemsize)]

    def write(
        self, tick: int, *, observed: int, time_ns: int, registered_ns: int, lateness_ns: int,
        reward: float, weights_version: int, episode: int, worker: int, source: Source, flags: int,
        action: Any, log_probability: float = 0.0, pending: Any = None, position: int = 0,
        beginning: Beginning | None = None,
    ) -> None:
        """Write the row of one tick. Only the environment process."""
        body = _BODY.pack(
            observed, time_ns, registered_ns, lateness_ns, reward, weights_version,
            episode & _EPISODE_MASK, worker, source, flags, log_probability, position,
        )
        action_bytes = self._action_bytes(action)
        if self.pending is not None:
            action_bytes += self.pending.encoded(pending)
        if self.state_size:
            action_bytes += self._state_bytes(beginning)
        crc = zlib.crc32(_STAMP.pack(tick) + body + action_bytes)
        self._store(tick, body + _CRC.pack(crc) + action_bytes)

    def _state_bytes(self, beginning: Beginning | None) -> bytes:
        if beginning is None:
            return _STATE_HEAD.pack(UNKNOWN_LAG, NOBODY) + bytes(4 * self.state_size)
        head = _STATE_HEAD.pack(beginning.lag, beginning.worker)
        return head + np.asarray(beginning.state, "<f4").tobytes()

    def copy(self, rows: Rows) -> None:
        """Write rows (n,) of this layout, each with its number and a right checksum.

        Only the ledger's one writer.
        """
        for row in rows:
            self._store(int(row["tick"]), row.tobytes()[_STAMP.size :])

    def _store(self, tick: int, rest: bytes) -> None:
        """Write the row of a tick, given all that follows the stamp."""
        start = CONTROL_BYTES + self._begin(tick) * self.dtype.itemsize + _STAMP.size
        self._buffer[start : start + len(rest)] = rest
        self._publish(tick)

    def truncate_episode(self) -> None:
        """Mark the newest row as truncated: the environment process that wrote it is gone.

        A row that ended its episode by itself stays as it is. Only the environment process.
        """
        rows = self.read(self.newest, self.newest + 1)
        if len(rows) and not rows["flags"][0]:
            rows["flags"] = TRUNCATED
            rows["crc"] = checksum(rows[0])
            self.copy(rows)

    def row(self, tick: int) -> np.void | None:
        """A copy of one row; None if it is gone or torn."""
        rows = self.read(tick, tick + 1)
        return rows[0] if len(rows) else None

    def read(self, start: int, stop: int) -> Rows:
        """Copies of the rows start <= tick < stop that are whole and still there, in order."""
        start, stop = max(start, self.floor), min(stop, self.newest + 1)
        start = max(start, stop - self.capacity)
        if stop <= start:
            return self._rows[:0].copy()
        first, last = start % self.capacity, (stop - 1) % self.capacity
        if first <= last:
            rows = self._rows[first : last + 1].copy()
        else:
            rows = np.concatenate([self._rows[first:], self._rows[: last + 1]])
        ticks = np.arange(start, stop)
        whole = self._whole(rows, ticks)
        return rows if whole.all() else rows[whole]

    def at(self, ticks: Ints) -> tuple[Rows, npt.NDArray[np.bool_]]:
        """Copies of the rows of the given ticks, and which of them are whole."""
        newest = self.newest
        rows = self._rows[np.maximum(ticks, self.floor) % self.capacity]
        return rows, self._whole(rows, ticks) & (ticks <= newest)

    def _whole(self, rows: Rows, ticks: Ints) -> npt.NDArray[np.bool_]:
        """Which of the rows, just copied, are those of the given ticks."""
        whole = self.hold(ticks)
        whole &= (rows["tick"] == ticks) & self._intact(rows)
        return whole

    def _intact(self, rows: Rows) -> npt.NDArray[np.bool_]:
        """Which rows, copied without gaps, carry the CRC32 of what they hold."""
        if self._check is None:
            return np.array([checksum(row) == row["crc"] for row in rows], np.bool_)
        found = np.empty(len(rows), np.bool_)
        job = _Job(rows.ctypes.data, found.ctypes.data, len(rows), *_places(self.dtype))
        self._check(ctypes.addressof(job))
        return found


def _encoder(blueprint: Blueprint) -> Callable[[Any], bytes]:
    """A function that turns an action into the bytes of its field."""
    dtype = np.dtype(blueprint.action_dtype).newbyteorder("<")
    if dtype == np.int32 and not blueprint.action_shape:
        return _INTEGER.pack
    return lambda action: np.asarray(action, dtype).tobytes()


def checksum(row: np.void) -> int:
    """The CRC32 that a whole row must carry."""
    raw = row.tobytes()
    _, _, start, stop = _places(row.dtype)
    return zlib.crc32(raw[start:stop], zlib.crc32(raw[: _STAMP.size + _BODY.size]))


class _Job(ctypes.Structure):
    """`struct rows` of `intact.c`."""

    _fields_ = (
        ("rows", ctypes.c_void_p), ("intact", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in (
            "count", "row_bytes", "crc_at", "action_at", "action_end",
        )),
    )


@cache
def _places(dtype: np.dtype[Any]) -> tuple[int, int, int, int]:
    """Where the parts of a row lie: `row_bytes` and what follows it in `_Job`."""
    assert dtype.fields is not None
    crc, at = dtype.fields["crc"][1], dtype.fields["action"][1]
    # What follows the action does so without a gap, for all of it is of four bytes.
    name = next(each for each in ("state", "pending", "action") if each in dtype.fields)
    last, last_at = dtype.fields[name][:2]
    return dtype.itemsize, crc, at, last_at + last.itemsize
