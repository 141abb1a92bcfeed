"""What batches need, found out in steps, and asked for before they are used."""

from __future__ import annotations

import pytest

from rtagent.learning.replay.batch_memory import KERNELS_BYTES, BatchMemory

EACH, ALWAYS = 1000, 50_000


class Machine:
    """Batches that need a fixed part and so much per transition, and a limit.

    Attributes:
        ran: sizes of the batches that were run.
        asked: bytes that were asked for.
    """

    def __init__(self, limit: int = 1 << 40) -> None:
        self.limit = limit
        self.ran: list[int] = []
        self.asked: list[int] = []
        self.memory = BatchMemory(self.run, self.ask)

    def needed(self, size: int) -> int:
        return ALWAYS + EACH * size

    def run(self, size: int) -> int:
        # Of the first size nothing is known yet.
        known = self.needed(size) if self.ran else 0
        assert self.asked[-1] >= KERNELS_BYTES + known, "too little was asked for"
        assert self.needed(size) <= self.limit, "killed"
        self.ran.append(size)
        return self.needed(size)

    def ask(self, count: int) -> None:
        self.asked.append(count)
        if count > self.limit:
            raise MemoryError


def test_the_first_size_is_approached_in_steps() -> None:
    machine = Machine()
    assert machine.memory.measure(32) == machine.needed(32)
    assert machine.ran == [1, 4, 16, 32]


def test_a_size_that_was_admitted_costs_nothing_more() -> None:
    machine = Machine()
    machine.memory.measure(32)
    asked = len(machine.asked)
    machine.memory.require(32)
    assert len(machine.asked) == asked
    machine.memory.require_twice(32)
    assert machine.asked[asked:] == [2 * (KERNELS_BYTES + machine.needed(32))]


@pytest.mark.parametrize("size", [1, 3, 17, 31, 33, 64, 128])
def test_a_size_up_to_four_times_as_large_is_asked_for_and_not_run(size: int) -> None:
    machine = Machine()
    machine.memory.measure(32)
    ran = len(machine.ran)
    machine.memory.require(size)
    assert len(machine.ran) == ran
    assert machine.asked[-1] >= KERNELS_BYTES + machine.needed(size)


def test_a_smaller_size_is_not_asked_for_as_if_it_were_a_large_one() -> None:
    machine = Machine()
    machine.memory.measure(1024)
    machine.memory.require(2)
    assert machine.asked[-1] == KERNELS_BYTES + 2 * machine.needed(1)


@pytest.mark.parametrize("room", [ALWAYS, 10**5, 10**6, 10**7])
def test_a_size_beyond_the_limit_is_refused_before_it_is_run(room: int) -> None:
    machine = Machine(KERNELS_BYTES + room)
    size = 1 << 20
    # As a learner does.
    while True:
        try:
            machine.memory.require(size)
            break
        except MemoryError:
            size //= 2
    assert machine.needed(size) <= KERNELS_BYTES + room
    # What does not grow with the batch counts four times at most.
    assert EACH * 2 * size + 4 * ALWAYS > room


def test_a_refused_size_is_asked_for_again() -> None:
    machine = Machine()
    machine.memory.measure(32)
    machine.limit = KERNELS_BYTES
    for _ in range(2):
        with pytest.raises(MemoryError):
            machine.memory.require(64)
    machine.memory.require(32)
    machine.limit = 1 << 40
    machine.memory.require(64)
