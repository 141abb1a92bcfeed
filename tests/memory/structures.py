"""The shared structures with contents that show where they come from.

Each class can be resumed by a writer that finds what a killed one left, and checked by readers.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from rtagent.memory.actions import SLOTS, ActionSlots
from rtagent.memory.double_buffer import DoubleBuffer
from rtagent.memory.frames import FrameRing
from rtagent.memory.ledger import TRUNCATED, Ledger, checksum
from rtagent.memory.policy_states import ENTRIES, Beginning, PolicyStates
from rtagent.memory.ring import StampedRing
from rtagent.staggering.arbiter import Deposited, Source
from tests.conftest import make_blueprint

SHAPE = (96, 96)
CAPACITY = 256
EPISODE = 48
PARAMETERS = 8192
PATTERNS = 251
STATE = 512
BLUEPRINT = make_blueprint(frame_shape=SHAPE)
RING_CODES = (StampedRing._begin.__code__, StampedRing._publish.__code__)


class Structure:
    """One structure, mapped anew by every process that uses it."""

    size: Callable[[], int]

    def __init__(self, memory: memoryview) -> None:
        raise NotImplementedError

    @staticmethod
    def format(memory: memoryview) -> None:
        pass

    @property
    def newest(self) -> int:
        """Number of the newest thing written; -1 at the start."""
        raise NotImplementedError

    @property
    def half_written(self) -> bool:
        """Whether the last writer was killed inside a write."""
        raise NotImplementedError

    def resume(self) -> None:
        """What a new writer does first."""

    def write(self, number: int) -> None:
        raise NotImplementedError

    def check(self, rng: random.Random) -> int:
        """Read something at random; how much was read. Raises if it is not as it was written."""
        raise NotImplementedError


class InARing(Structure):
    """A structure that is a stamped ring."""

    ring: Any

    @property
    def newest(self) -> int:
        return self.ring.newest

    @property
    def half_written(self) -> bool:
        return self.newest > 0 and bool((self.ring.stamps == -1).any())


class Frames(InARing):
    """The frame ring: row n of `PICTURES` is frame n."""

    size = staticmethod(lambda: FrameRing.size(BLUEPRINT, CAPACITY))
    format = FrameRing.format
    pictures = np.add.outer(
        np.arange(PATTERNS), np.arange(SHAPE[0] * SHAPE[1]) % 7
    ).astype(np.uint8).reshape(PATTERNS, *SHAPE)

    def __init__(self, memory: memoryview) -> None:
        self.ring = FrameRing(memory, BLUEPRINT, CAPACITY)
        self.out = np.zeros((4, *SHAPE), np.uint8)

    def write(self, number: int) -> None:
        self.ring.publish(number, self.pictures[number % PATTERNS], number - number % EPISODE)

    def check(self, rng: random.Random) -> int:
        # Most of all the slots that the writer is about to reach.
        newest = self.newest
        number = newest - rng.choice((0, 1, CAPACITY // 2, CAPACITY - 4, CAPACITY - 2, CAPACITY))
        if number < 0 or not self.ring.observation(number, self.out):
            return 0
        start = number - number % EPISODE
        for index, shown in enumerate(range(number - 3, number + 1)):
            expected = self.pictures[max(shown, start) % PATTERNS]
            assert np.array_equal(self.out[index], expected), f"frame {shown} of stack {number}"
        return 1


class Rows(Structure):
    """The tick ledger: every field follows from the tick, and the checksum holds."""

    size = staticmethod(lambda: Ledger.size(BLUEPRINT, CAPACITY))
    format = Ledger.format

    def __init__(self, memory: memoryview) -> None:
        self.ledger = Ledger(memory, BLUEPRINT, CAPACITY)
        self.memory = memory

    @property
    def newest(self) -> int:
        return self.ledger.newest

    @property
    def half_written(self) -> bool:
        _, whole = self.ledger.at(np.arange(max(0, self.newest - CAPACITY + 1), self.newest + 1))
        return not whole.all()

    def resume(self) -> None:
        self.ledger.truncate_episode()

    def write(self, number: int) -> None:
        self.ledger.write(
            number, observed=number - 1, time_ns=number * 3, registered_ns=number * 5,
            lateness_ns=-number, reward=number % 99, weights_version=number % 1000,
            episode=number // EPISODE, worker=number % 250, source=Source(number % 3), flags=0,
            action=number % 3,
        )

    def check(self, rng: random.Random) -> int:
        start = max(0, self.newest - rng.choice((8, CAPACITY // 2, CAPACITY - 2, CAPACITY)))
        rows = self.ledger.read(start, start + 8)
        ticks = rows["tick"]
        assert (np.diff(ticks) > 0).all()
        assert set(ticks.tolist()) <= set(range(start, start + 8))
        for field, expected in (
            ("observed", ticks - 1), ("time_ns", ticks * 3), ("lateness_ns", -ticks),
            ("reward", ticks % 99), ("episode", ticks // EPISODE), ("worker", ticks % 250),
            ("action", ticks % 3),
        ):
            assert (rows[field] == expected).all(), field
        assert all(checksum(row) == row["crc"] for row in rows)
        assert set(rows["flags"].tolist()) <= {0, TRUNCATED}
        return len(rows)


class Deposits(Structure):
    """The action slots of one inference process."""

    size = staticmethod(lambda: ActionSlots.size(BLUEPRINT))

    def __init__(self, memory: memoryview) -> None:
        self.slots = ActionSlots(memory, BLUEPRINT)
        self.slots.limit(1)

    @staticmethod
    def format(memory: memoryview) -> None:
        ActionSlots.format(memory)

    @property
    def newest(self) -> int:
        return int(self.slots._ticks[0].max())

    @property
    def half_written(self) -> bool:
        newest = self.newest
        written = range(max(0, newest - SLOTS + 1), newest + 1)
        return any(not self.slots.at(tick) for tick in written)

    def write(self, number: int) -> None:
        self.slots.deposit(self._expected(number))

    def check(self, rng: random.Random) -> int:
        newest = self.newest
        if newest < 0:
            return 0
        tick = newest + rng.choice((2, 1, 0, -1, -SLOTS // 2, 2 - SLOTS))
        found = self.slots.at(tick)
        assert list(found) in ([], [self._expected(tick)])
        late = self.slots.late(tick, tick - 20)
        assert late is None or late == self._expected(late.tick)
        return len(found) + (late is not None)

    @staticmethod
    def _expected(tick: int) -> Deposited:
        return Deposited(0, tick - 7, tick, tick % 3, tick % 1000, (tick + 1) / 8)


class Doubles(Structure):
    """A double buffer whose record is an array, filled in place, without any checksum."""

    values = np.arange(PARAMETERS)
    size = staticmethod(lambda: 64 + 16 * PARAMETERS)

    def __init__(self, memory: memoryview) -> None:
        self.buffer = DoubleBuffer(memory)
        self.copies = np.frombuffer(memory, np.int64, 2 * PARAMETERS, 64).reshape(2, PARAMETERS)
        self.seen = 0

    @property
    def newest(self) -> int:
        return self.buffer.number - 1

    @property
    def half_written(self) -> bool:
        return -1 in self.buffer._marks

    def resume(self) -> None:
        # A killed writer must leave the newest record whole.
        assert self.newest < 0 or self.buffer.read_by(self.copied) is not None

    def write(self, number: int) -> None:
        self.copies[self.buffer.begin()] = self.values + number
        self.buffer.finish()

    def copied(self, copy: int) -> np.ndarray:
        return self.copies[copy].copy()

    def check(self, rng: random.Random) -> int:
        found = self.buffer.read_by(self.copied)
        if found is None:
            return 0
        assert np.array_equal(found, self.values + found[0])
        assert found[0] >= self.seen
        self.seen = found[0]
        return 1


class States(InARing):
    """The states of a recurrent policy: all of an inference's numbers follow from its frame."""

    size = staticmethod(lambda: PolicyStates.size(STATE))

    def __init__(self, memory: memoryview) -> None:
        self.states = PolicyStates(memory, STATE)
        self.ring = self.states._ring(1)

    @staticmethod
    def format(memory: memoryview) -> None:
        PolicyStates.format(memory, STATE)

    def write(self, number: int) -> None:
        began, left = (np.full(STATE, value, np.float32) for value in (number, number + 1))
        self.states.keep(1, number, Beginning(number % 9, began, number), left)

    def check(self, rng: random.Random) -> int:
        frame = self.newest + rng.choice((2, 1, 0, 2 - ENTRIES, -ENTRIES))
        lag, state, worker = self.states.begin(0, 2, frame, 0)
        assert (state == (frame - lag + 1 if lag else 0)).all()
        assert worker == (1 if lag else -1)
        behind = self.states.behind(1, frame)
        assert behind is None or (behind.lag == frame % 9 and (behind.state == frame).all())
        assert behind is None or behind.worker == frame
        return (lag > 0) + (behind is not None)


STRUCTURES: tuple[type[Structure], ...] = (Frames, Rows, Deposits, Doubles, States)
