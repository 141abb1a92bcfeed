"""The shared structures with contents that show where they come from.

Each class can be resumed by a writer that finds what a killed one left, and checked by readers.
"""

from __future__ import annotations

import random
from types import CodeType
from typing import Any, Protocol

import numpy as np

from rtagent.memory import learner_state
from rtagent.memory.actions import SLOTS, ActionSlots
from rtagent.memory.cells import JsonCell
from rtagent.memory.frames import FrameRing
from rtagent.memory.learner_state import LearnerState, Progress
from rtagent.memory.ledger import TRUNCATED, Ledger, checksum
from rtagent.memory.weights import WeightBuffers, WeightsInfo
from rtagent.staggering.arbiter import Deposited, Source
from tests.conftest import make_blueprint

SHAPE = (96, 96)
CAPACITY = 256
EPISODE = 48
PARAMETERS = 8192
PATTERNS = 251
JSON_CAPACITY = 1024
BLUEPRINT = make_blueprint(frame_shape=SHAPE)


class Structure(Protocol):
    """One structure, mapped anew by every process that uses it."""

    code: CodeType

    def __init__(self, memory: memoryview) -> None: ...

    @staticmethod
    def size() -> int: ...

    @staticmethod
    def format(memory: memoryview) -> None: ...

    @property
    def newest(self) -> int:
        """Number of the newest thing written; -1 at the start."""
        ...

    @property
    def half_written(self) -> bool:
        """Whether the last writer was killed inside a write."""
        ...

    def resume(self) -> None:
        """What a new writer does first."""
        ...

    def write(self, number: int) -> None: ...

    def check(self, rng: random.Random) -> int:
        """Read something at random; how much was read. Raises if it is not as it was written."""
        ...


class Frames:
    """The frame ring: row n of `PICTURES` is frame n."""

    code = FrameRing.publish.__code__
    pictures = np.add.outer(
        np.arange(PATTERNS), np.arange(SHAPE[0] * SHAPE[1]) % 7
    ).astype(np.uint8).reshape(PATTERNS, *SHAPE)

    def __init__(self, memory: memoryview) -> None:
        self.ring = FrameRing(memory, BLUEPRINT, CAPACITY)
        self.out = np.zeros((4, *SHAPE), np.uint8)

    @staticmethod
    def size() -> int:
        return FrameRing.size(BLUEPRINT, CAPACITY)

    @staticmethod
    def format(memory: memoryview) -> None:
        FrameRing.format(memory)

    @property
    def newest(self) -> int:
        return self.ring.newest

    @property
    def half_written(self) -> bool:
        return self.newest > 0 and bool((self.ring.numbers == -1).any())

    def resume(self) -> None:
        pass

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


class Rows:
    """The tick ledger: every field follows from the tick, and the checksum holds."""

    code = Ledger.write.__code__

    def __init__(self, memory: memoryview) -> None:
        self.ledger = Ledger(memory, BLUEPRINT, CAPACITY)
        self.memory = memory

    @staticmethod
    def size() -> int:
        return Ledger.size(BLUEPRINT, CAPACITY)

    @staticmethod
    def format(memory: memoryview) -> None:
        Ledger.format(memory)

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


class Deposits:
    """The action slots of one inference process."""

    code = ActionSlots.deposit.__code__

    def __init__(self, memory: memoryview) -> None:
        self.slots = ActionSlots(memory, BLUEPRINT)
        self.slots.limit(1)

    @staticmethod
    def size() -> int:
        return ActionSlots.size(BLUEPRINT)

    @staticmethod
    def format(memory: memoryview) -> None:
        ActionSlots.format(memory, BLUEPRINT)

    @property
    def newest(self) -> int:
        return int(self.slots._ticks[0].max())

    @property
    def half_written(self) -> bool:
        newest = self.newest
        written = range(max(0, newest - SLOTS + 1), newest + 1)
        return any(not self.slots.at(tick) for tick in written)

    def resume(self) -> None:
        pass

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


class Weights:
    """The weight buffers: every value follows from the version."""

    code = WeightBuffers.publish.__code__
    values = np.arange(PARAMETERS, dtype=np.float32)

    def __init__(self, memory: memoryview) -> None:
        self.buffers = WeightBuffers(memory, PARAMETERS)
        self.out = np.zeros(PARAMETERS, np.float32)

    @staticmethod
    def size() -> int:
        return WeightBuffers.size(PARAMETERS)

    @staticmethod
    def format(memory: memoryview) -> None:
        WeightBuffers.format(memory)

    @property
    def newest(self) -> int:
        return self.buffers.publication

    @property
    def half_written(self) -> bool:
        headers = self.buffers._headers["publication"]
        return self.newest > 3 and bool((headers == -1).any())

    def resume(self) -> None:
        # A killed publisher must leave the newest publication whole.
        assert self.newest < 0 or self.buffers.read(self.out) is not None

    def write(self, number: int) -> None:
        self.buffers.publish(self.values + number % PATTERNS, WeightsInfo(number, 3 * number))

    def check(self, rng: random.Random) -> int:
        info = self.buffers.read(self.out)
        if info is None:
            return 0
        assert np.array_equal(self.out, self.values + info.version % PATTERNS)
        assert info.updates == 3 * info.version
        return 1


class Learned:
    """The learners' state: every value follows from the number of updates."""

    code = learner_state._publish.__code__

    def __init__(self, memory: memoryview) -> None:
        self.state = LearnerState(memory, PARAMETERS)
        self.out = np.zeros(PARAMETERS, np.float32)

    @staticmethod
    def size() -> int:
        return LearnerState.size(PARAMETERS)

    @staticmethod
    def format(memory: memoryview) -> None:
        LearnerState.format(memory)

    @property
    def newest(self) -> int:
        return self.state.number

    @property
    def half_written(self) -> bool:
        return self.newest > 1 and bool((self.state._headers["number"] == -1).any())

    def resume(self) -> None:
        # A killed learner must leave the current copy whole, with all that its successor needs.
        assert self.newest < 0 or self.state.read_weights(self.out) is not None
        assert (self.state.current.mean == self.state.progress.samples).all()

    def write(self, number: int) -> None:
        copy = self.state.copies[self.state.begin()]
        copy.weights[:] = Weights.values + number % PATTERNS
        copy.mean[:] = number % PATTERNS
        self.state.commit(Progress(number, 3 * number, number % PATTERNS))

    def check(self, rng: random.Random) -> int:
        progress = self.state.read_weights(self.out)
        if progress is None:
            return 0
        assert np.array_equal(self.out, Weights.values + progress.updates % PATTERNS)
        assert progress.steps == 3 * progress.updates
        return 1


class Document:
    """The JSON cell: numbers only grow, and the text fits the number."""

    code = JsonCell.write.__code__

    def __init__(self, memory: memoryview) -> None:
        self.cell = JsonCell(memory, JSON_CAPACITY)
        self.memory = memory
        self.seen = -1

    @staticmethod
    def size() -> int:
        return JsonCell.size(JSON_CAPACITY)

    @staticmethod
    def format(memory: memoryview) -> None:
        pass

    @property
    def newest(self) -> int:
        return int(JsonCell(self.memory, JSON_CAPACITY).read().get("number", -1))

    @property
    def half_written(self) -> bool:
        return False

    def resume(self) -> None:
        assert self.cell.sequence == 0 or self.cell.read()

    def write(self, number: int) -> None:
        self.cell.write(_document(number))

    def check(self, rng: random.Random) -> int:
        value: dict[str, Any] = self.cell.read()
        if not value:
            return 0
        assert value == _document(value["number"])
        assert value["number"] >= self.seen
        self.seen = value["number"]
        return 1


def _document(number: int) -> dict[str, Any]:
    return {"number": number, "text": chr(97 + number % 26) * (number % 900)}


STRUCTURES: tuple[type[Structure], ...] = (Frames, Rows, Deposits, Weights, Learned, Document)
