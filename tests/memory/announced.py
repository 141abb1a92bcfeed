"""What one process tells others through shared memory, as cases for `weak_machine`.

Each case writes things whose every part tells their number, and has readers of two kinds: `check`
looks at anything, also at what the writer is about to replace, and believes nothing that is not of
one piece; `announced` looks at what is said to be there, and has to find it at the first look.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np

from rtagent.memory import array_buffer, double_buffer
from rtagent.memory.actions import NANO, SLOTS, ActionSlots
from rtagent.memory.double_buffer import JsonDoubleBuffer, RecordDoubleBuffer
from rtagent.memory.frames import FrameRing
from rtagent.memory.gather import Gather
from rtagent.memory.ledger import Ledger
from rtagent.memory.policy_states import ENTRIES, Beginning, PolicyStates
from rtagent.memory.records import Layout
from rtagent.memory.ring import EntryList
from rtagent.memory.wakeup import Doorbell
from rtagent.memory.weights import WeightBuffers, WeightsInfo
from rtagent.staggering.arbiter import Deposited, Source
from rtagent.staggering.state import StaggerState
from tests.conftest import make_blueprint

BLUEPRINT = make_blueprint(frame_shape=(4, 8), frame_stack=2)
CAPACITY = 16
EPISODE = 5
VALUES = 12


Replacements = tuple[tuple[object, str, object], ...]
"""Objects, names of their attributes, and what these are for the time being."""


class Case:
    """One kind of thing, seen by one process."""

    history = CAPACITY + 3
    """Things written before the writer is looked at."""
    writes = 2
    """Things that it writes while `check` looks."""
    always: Replacements = ()
    """What is replaced: checksums where the marks alone must do, and sizes."""
    once: Replacements = ()
    """What takes away second attempts."""
    size: Callable[[], int]

    def __init__(self, memory: memoryview) -> None:
        self.memory = memory

    @staticmethod
    def format(memory: memoryview) -> None:
        pass

    def write(self, number: int) -> None:
        raise NotImplementedError

    def check(self, rng: random.Random) -> None:
        pass

    def announced(self) -> None:
        pass


class OfFrames(Case):
    """The frame ring, read in every way; a picture is full of its number."""

    format = FrameRing.format

    def __init__(self, memory: memoryview) -> None:
        self.ring = FrameRing(memory, BLUEPRINT, CAPACITY)
        self.out = np.empty((1, 2, 4, 8), np.uint8)

    size = staticmethod(lambda: FrameRing.size(BLUEPRINT, CAPACITY))

    def write(self, number: int) -> None:
        start = number - number % EPISODE
        self.ring.publish(number, np.full((4, 8), number, np.uint8), start)

    def right(self, number: int, frame: Any) -> None:
        assert (frame == number).all(), f"frame {number}: {frame}"


class Stacks(OfFrames):
    """One observation."""

    writes = 4

    def look(self, number: int) -> bool:
        if not self.ring.observation(number, self.out[0]):
            return False
        start = number - number % EPISODE
        self.right(max(number - 1, start), self.out[0, 0])
        self.right(number, self.out[0, 1])
        return True

    def check(self, rng: random.Random) -> None:
        self.look(self.history + rng.choice((-CAPACITY + 1, -CAPACITY + 2, -1, 0, 1, 2)))

    def announced(self) -> None:
        assert self.look(self.ring.newest)


class Pictures(OfFrames):
    """One frame."""

    def look(self, number: int) -> bool:
        frame = self.ring.frame(number)
        if frame is not None:
            self.right(number, frame)
        return frame is not None

    def check(self, rng: random.Random) -> None:
        self.look(self.history + rng.randint(-CAPACITY, 2))

    def announced(self) -> None:
        assert self.look(self.ring.newest)


class Ranges(OfFrames):
    """Several frames at once."""

    def look(self, first: int, stop: int) -> int:
        numbers = np.arange(first, stop)
        frames, starts, whole = self.ring.read(numbers)
        for index in np.flatnonzero(whole):
            self.right(numbers[index], frames[index])
            assert starts[index] == numbers[index] - numbers[index] % EPISODE
        return int(whole.sum())

    def check(self, rng: random.Random) -> None:
        newest = self.ring.newest
        self.look(newest - CAPACITY + 1, newest + 1)

    def announced(self) -> None:
        newest = self.ring.newest
        assert self.look(newest - 3, newest + 1) == 4


class Batches(OfFrames):
    """Stacks gathered by NumPy."""

    writes = 11

    def look(self, number: int) -> bool:
        gather = Gather(self.ring, np.array([number]), self.out)
        if not gather.run():
            return False
        self.right(max(number - 1, number - number % EPISODE), self.out[0, 0])
        self.right(number, self.out[0, 1])
        return True

    def check(self, rng: random.Random) -> None:
        self.look(self.ring.newest - rng.randint(0, CAPACITY - 2))

    def announced(self) -> None:
        assert self.look(self.ring.newest)


class Floors(Pictures):
    """Memory that goes back to the system, and reads as zero, after the floor has risen above it.

    The slot's number may lie on another page, and stay.
    """

    def write(self, number: int) -> None:
        if number < self.history:
            super().write(number)
        else:
            self.ring.raise_floor(number - 4)
            self.ring.frames[(number - 5) % CAPACITY] = 0

    def check(self, rng: random.Random) -> None:
        self.look(self.history - rng.randint(4, 5))

    announced = Case.announced


class Rows(Case):
    """The tick ledger."""

    always = ((Ledger, "_intact", lambda self, rows: np.ones(len(rows), np.bool_)),)
    format = Ledger.format

    def __init__(self, memory: memoryview) -> None:
        self.ledger = Ledger(memory, BLUEPRINT, CAPACITY)

    size = staticmethod(lambda: Ledger.size(BLUEPRINT, CAPACITY))

    def write(self, number: int) -> None:
        self.put(number, number)

    def put(self, tick: int, number: int) -> None:
        self.ledger.write(
            tick, observed=number, time_ns=number, registered_ns=number, lateness_ns=number,
            reward=number, weights_version=number, episode=number, worker=number,
            source=Source.AGENT, flags=0, log_probability=number, position=number, action=number,
        )

    @staticmethod
    def right(rows: Any) -> None:
        for name in set(rows.dtype.names) - {"tick", "source", "flags", "crc"}:
            assert (rows[name] == rows["observed"]).all(), f"{name}: {rows}"
        assert (rows["observed"] >= rows["tick"]).all(), rows

    def check(self, rng: random.Random) -> None:
        first = self.history - CAPACITY
        self.right(self.ledger.read(first, first + CAPACITY + 3))
        rows, whole = self.ledger.at(np.arange(first, first + CAPACITY + 3))
        self.right(rows[whole])

    def announced(self) -> None:
        newest = self.ledger.newest
        assert self.ledger.read(newest - 2, newest + 1)["tick"].tolist() == [
            newest - 2, newest - 1, newest
        ]
        _, whole = self.ledger.at(np.arange(newest - 2, newest + 1))
        assert whole.all()


class RowsAgain(Rows):
    """The newest row is written anew, as when its episode is cut off: here the checksum must do."""

    always = ()

    def write(self, number: int) -> None:
        self.put(min(number, self.history - 1), number)

    announced = Case.announced


class Slots(Case):
    """Action slots of one inference process."""

    history = SLOTS + 3

    def __init__(self, memory: memoryview) -> None:
        self.slots = ActionSlots(memory, BLUEPRINT)
        self.slots.limit(1)

    size = staticmethod(lambda: ActionSlots.size(BLUEPRINT))

    @staticmethod
    def format(memory: memoryview) -> None:
        ActionSlots.format(memory, BLUEPRINT)

    def write(self, number: int) -> None:
        self.slots.deposit(self.expected(number))

    @staticmethod
    def expected(tick: int) -> Deposited:
        return Deposited(0, 2 * tick, tick, tick, tick, float(tick), float(tick))


class Deposits(Slots):
    """What the environment looks for."""

    def check(self, rng: random.Random) -> None:
        tick = self.history + rng.choice((1, 0, -1, 1 - SLOTS, -SLOTS))
        assert list(self.slots.at(tick)) in ([], [self.expected(tick)])
        late = self.slots.late(tick, 2 * (tick - 20))
        assert late is None or late == self.expected(late.tick)

    def announced(self) -> None:
        read = self.slots._read

        def strictly(worker: int, tick: int) -> Deposited | None:
            found = read(worker, tick)
            assert found is not None, f"the slot says that it holds tick {tick}"
            return found

        self.slots._read = strictly  # type: ignore[method-assign]
        self.slots.at(self.history)
        self.slots.late(self.history + 1, 2 * (self.history - 2))


class Sources(Slots):
    """Which frames registered actions were computed from."""

    def check(self, rng: random.Random) -> None:
        ticks = self.history + np.array([1, 0, -1, 1 - SLOTS, -SLOTS])
        workers = np.zeros(len(ticks), np.intp)
        frames = self.slots.frames_of(workers, ticks, ticks * NANO)
        assert ((frames == 2 * ticks) | (frames == -1)).all(), frames

    def announced(self) -> None:
        tick = np.array([self.history - 1])
        assert self.slots.frames_of(np.zeros(1, np.intp), tick, tick * NANO) == 2 * tick


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
        self.states.keep(0, number, Beginning(number, began), left)

    def look(self, frame: int) -> bool:
        lag, state = self.states.begin(1, 1, frame + 1, 0)
        assert (state == (frame - lag + 2 if lag else 0)).all()
        behind = self.states.behind(0, frame)
        assert behind is None or (behind.lag == behind.state).all()
        assert behind is None or behind.lag == frame
        return lag == 1 and behind is not None

    def check(self, rng: random.Random) -> None:
        self.look(self.history - rng.choice((-1, 0, 1, ENTRIES - 1, ENTRIES)))

    def announced(self) -> None:
        assert self.look(self.states._ring(0).newest)


CASES: tuple[type[Case], ...] = (
    Stacks, Pictures, Ranges, Batches, Floors, Rows, RowsAgain, Deposits, Sources, Records,
    Published, Pieces, Documents, Entries, Memberships, Bell, States,
)
