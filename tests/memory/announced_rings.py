"""The frame ring, the tick ledger and the action slots, as cases for `weak_machine`."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from rtagent.clock import NANO
from rtagent.memory.actions import SLOTS, ActionSlots
from rtagent.memory.frames import FrameRing
from rtagent.memory.gather import Gather
from rtagent.memory.ledger import Ledger
from rtagent.staggering.arbiter import Deposited, Source
from tests.conftest import make_blueprint
from tests.memory.announced_case import CAPACITY, Case

BLUEPRINT = make_blueprint(frame_shape=(4, 8), frame_stack=2)
EPISODE = 5


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
        ActionSlots.format(memory)

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
