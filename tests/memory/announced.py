"""What one process tells others through shared memory, as cases for `weak_machine`."""

from __future__ import annotations

import contextlib
import random
from dataclasses import astuple, dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from rtagent.config import Config
from rtagent.inference.driver import Driver
from rtagent.memory import array_buffer, double_buffer
from rtagent.memory.double_buffer import JsonDoubleBuffer, RecordDoubleBuffer
from rtagent.memory.policy_states import ENTRIES, Beginning, PolicyStates
from rtagent.memory.process_metrics import InferenceRecord
from rtagent.memory.records import Layout
from rtagent.memory.ring import EntryList
from rtagent.memory.wakeup import Doorbell
from rtagent.memory.weights import WeightBuffers, WeightsInfo
from rtagent.staggering.arbiter import Deposited
from rtagent.staggering.state import StaggerState
from rtagent.telemetry.stats import StatsReader
from tests.memory.announced_case import CAPACITY, VALUES, Case
from tests.memory.announced_rings import (
    Batches,
    Deposits,
    Floors,
    Pictures,
    Ranges,
    Rows,
    RowsAgain,
    Sources,
    Stacks,
)


class Published(Case):
    """The weight buffers."""

    writes = 4

    def __init__(self, memory: memoryview) -> None:
        self.buffers = WeightBuffers(memory, VALUES)
        self.out = np.zeros(VALUES, np.float32)

    size = staticmethod(lambda: WeightBuffers.size(VALUES))
    once = ((double_buffer, "READ_ATTEMPTS", 1),)
    always = ((array_buffer, "checksum", lambda *everything: 0),)

    def write(self, number: int) -> None:
        self.buffers.publish(np.full(VALUES, number, np.float32), WeightsInfo(number, number))

    def look(self) -> bool:
        info = self.buffers.read(self.out)
        if info is not None:
            assert info.version == info.updates
            assert (self.out == info.version).all(), (info, self.out)
        return info is not None

    def check(self, rng: random.Random) -> None:
        self.look()

    def announced(self) -> None:
        assert self.look()


class Pieces(Published):
    """The weight buffers, copied a piece at a time."""

    always = (*Published.always, (array_buffer, "PIECE_VALUES", VALUES // 3))

    def look(self) -> bool:
        reading = self.buffers.begin_reading(self.out)
        while reading is not None and reading.copy():
            if reading.complete:
                assert reading.header.version == reading.header.updates
                assert (self.out == reading.header.version).all(), (reading.header, self.out)
                return True
        return False


@dataclass
class Five:
    """A record whose every field says the same number."""

    a: int = -1
    b: int = -1
    c: float = -1.0
    d: int = -1
    e: int = -1


class Records(Case):
    """A record in a double buffer, without a checksum."""

    size = staticmethod(lambda: RecordDoubleBuffer.size(Five))
    once = ((double_buffer, "READ_ATTEMPTS", 1),)

    def __init__(self, memory: memoryview) -> None:
        self.buffer = RecordDoubleBuffer(memory, Five)

    def write(self, number: int) -> None:
        self.buffer.write(Five(*[number] * 5))

    def look(self) -> bool:
        found = self.buffer.read()
        assert len({*astuple(found)}) == 1, found
        return found.a >= 0

    def check(self, rng: random.Random) -> None:
        self.look()

    def announced(self) -> None:
        assert self.look()


class Documents(Case):
    """A JSON document."""

    size = staticmethod(lambda: JsonDoubleBuffer.size(64))

    def write(self, number: int) -> None:
        JsonDoubleBuffer(self.memory, 64).write({"a": number, "b": [number] * 5})

    def check(self, rng: random.Random) -> None:
        found = JsonDoubleBuffer(self.memory, 64).read()
        assert found == {} or found["b"] == [found["a"]] * 5


@dataclass
class Entry:
    """An entry whose fields are equal."""

    a: int
    b: int
    c: int
    d: int


ENTRY = Layout(Entry)


class Entries(Case):
    """A list of its newest entries."""

    size = staticmethod(lambda: EntryList.size(ENTRY, CAPACITY))

    def __init__(self, memory: memoryview) -> None:
        self.entries = EntryList(memory, ENTRY, CAPACITY)

    def write(self, number: int) -> None:
        self.entries.append(Entry(number, number, number, number))

    def check(self, rng: random.Random) -> None:
        for most in (3, CAPACITY):
            found = self.entries.newest(most)
            self._check(found)
        found, count = self.entries.since(rng.randrange(CAPACITY))
        self._check(found)
        assert not len(found) or found["a"][-1] == count - 1

    def _check(self, found: np.ndarray) -> None:
        for name in "bcd":
            assert (found[name] == found["a"]).all()
        assert (np.diff(found["a"]) == 1).all()

    def announced(self) -> None:
        assert self.entries.newest(1)["a"] in (self.history - 1, self.history)


class Memberships(Case):
    """Who takes part in staggering, read without the lock."""

    size = StaggerState.nbytes

    def __init__(self, memory: memoryview) -> None:
        self.state = StaggerState(memory)

    def write(self, number: int) -> None:
        self.state.reset("adaptive", 0.0, number + 1)

    def check(self, rng: random.Random) -> None:
        for _ in range(2):
            found = self.state.membership
            assert found.changes in (0, *range(self.history, self.history + 3))
            assert found.ring == tuple(range(max(found.changes, 1)))


class Still:
    """Time stands."""

    def now(self) -> float:
        return 1.0

    def sleep_until(self, when: float) -> None:
        pass


class Awake(Exception):
    """The kernel would not let it sleep."""


class Bell(Case):
    """A doorbell: nobody sleeps who has missed what it was rung for."""

    history = 3

    def __init__(self, memory: memoryview) -> None:
        self.bell = Doorbell(memory, 8)
        self.word = np.frombuffer(memory, np.int64)[3:4]

    size = staticmethod(lambda: 64)

    def write(self, number: int) -> None:
        self.word[0] = number
        self.bell.ring()

    def announced(self) -> None:
        wanted = self.history

        def sleep(*arguments: Any) -> None:
            # The kernel compares with the count as it is when the writer is done.
            assert arguments[3].value != wanted + 1, "asleep although the bell was rung"
            raise Awake

        self.bell._syscall = sleep
        with contextlib.suppress(Awake):
            assert self.bell.wait_for(lambda: self.word[0] == wanted, Still(), 0.5)


class States(Case):
    """What inferences of a recurrent policy began with, and what they left."""

    history = ENTRIES + 3
    size = staticmethod(lambda: PolicyStates.size(VALUES))

    def __init__(self, memory: memoryview) -> None:
        self.states = PolicyStates(memory, VALUES)

    @staticmethod
    def format(memory: memoryview) -> None:
        PolicyStates.format(memory, VALUES)

    def write(self, number: int) -> None:
        began, left = (np.full(VALUES, each, np.float32) for each in (number, number + 1))
        self.states.keep(0, number, Beginning(number, began, number), left)

    def look(self, frame: int) -> bool:
        lag, state, _ = self.states.begin(1, 1, frame + 1, 0)
        assert (state == (frame - lag + 2 if lag else 0)).all()
        behind = self.states.behind(0, frame)
        assert behind is None or (behind.lag == behind.state).all()
        assert behind is None or behind.lag == behind.worker == frame
        return lag == 1 and behind is not None

    def check(self, rng: random.Random) -> None:
        self.look(self.history - rng.choice((-1, 0, 1, ENTRIES - 1, ENTRIES)))

    def announced(self) -> None:
        assert self.look(self.states._ring(0).newest)


class Inferences(Case):
    """What an inference process lists and then counts: no more are counted than are listed."""

    size = InferenceRecord.size

    def __init__(self, memory: memoryview) -> None:
        self.record = InferenceRecord(memory)

    def write(self, number: int) -> None:
        driver: Any = SimpleNamespace(
            _context=SimpleNamespace(record=self.record, config=Config()), _takeover_s=0.0,
            _version=0, _epsilon=0.0, _latency=0.0, _chunk=[0],
            _frame_wait=SimpleNamespace(ahead=SimpleNamespace(seconds=0.0, awake_s=0.0)),
        )
        Driver._count_inference(driver, Deposited(0, number, number + 1, 0, 0, float(number)))

    def announced(self) -> None:
        world = SimpleNamespace(
            ledger=SimpleNamespace(newest=-1), metrics=SimpleNamespace(inference=[self.record]),
            control=SimpleNamespace(desired=SimpleNamespace(rows=1)),
        )
        reader: Any = SimpleNamespace(_world=world)
        found = StatsReader._registered(reader, {}, 0)
        assert len(found.recent[0]) >= found.total >= self.history


CASES: tuple[type[Case], ...] = (
    Stacks, Pictures, Ranges, Batches, Floors, Rows, RowsAgain, Deposits, Sources, Records,
    Published, Pieces, Documents, Entries, Memberships, Bell, States, Inferences,
)
