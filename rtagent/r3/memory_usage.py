"""What the daemon uses of the memory, and which part of it holds how much; bytes, measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from rtagent.memory.control import DesiredState
from rtagent.memory.meter import Measured
from rtagent.memory.world import World, WorldMemory
from rtagent.r3 import equations
from rtagent.r3.controller import batch_in_force

RINGS = ("frames", "ledger")
"""Arenas that follow the limit of the replay."""
MEASURE_EVERY_S = 1.0


class NotMeasured(Exception):
    """The memory of the processes has not been measured yet."""


class MemoryUsage:
    """Measures the processes once a second, and knows what the shared memory holds.

    Args:
        memory: the owner of the shared memory.
        world: the shared memory.
        pids: the processes of the daemon at this moment.
        private: memory of processes, without what is shared, see `MemoryMeter`. If None, not known
            yet.
    """

    def __init__(
        self, memory: WorldMemory, world: World, pids: Callable[[], Iterable[int]],
        private: Callable[[Iterable[int], bool], Measured | None],
    ) -> None:
        self._memory, self._world = memory, world
        self._pids, self._measure_private = pids, private
        self._newest: int | None = None
        self._private: int | None = None
        self._next = -math.inf
        self._largest_batch = 0

    @property
    def known(self) -> bool:
        """Whether the processes have been measured when every worker was there."""
        return self._private is not None

    def measure(self, now: float, desired: DesiredState) -> bool:
        """Take in a new measurement of the processes, if there is one and all were there."""
        if now < self._next:
            return False
        measured = self._measure_private(self._pids(), self._ready(desired))
        if measured is None:
            return False
        self._next = now + MEASURE_EVERY_S
        self._newest = measured.size
        if measured.complete:
            self._private = measured.size
        return measured.complete

    def accept_newest(self) -> None:
        """Count on the newest measurement, whoever was there.

        Raises:
            NotMeasured: there is none.
        """
        if self._newest is None:
            raise NotMeasured
        self._private = self._newest

    def measure_soon(self) -> None:
        """Measure at the next step."""
        self._next = -math.inf

    def _ready(self, desired: DesiredState) -> bool:
        metrics = self._world.metrics
        learners = metrics.learners[: desired.learning.processes]
        inference = metrics.inference[: desired.processes]
        return all(each.ready for each in (metrics.environment, *learners, *inference))

    def replay(self) -> int:
        """What the rings have now."""
        pages = self._memory.pages()
        return sum(pages[name] for name in RINGS)

    def total(self) -> int:
        """What the daemon uses, as of the last measurement of its processes; -1: unknown."""
        return -1 if self._private is None else self._private + sum(self._memory.pages().values())

    def baseline(self, desired: DesiredState) -> int:
        """Of the total, what is neither replay nor batches; -1: unknown."""
        if not self.known:
            return -1
        return int(self.total() - self.replay() - self.batches(desired))

    def batches(self, desired: DesiredState) -> float:
        """What learners have for batches: as much as the largest ones so far needed.

        A process keeps what it once had. If that counted as its baseline as soon as batches are
        smaller, there would be less for batches each time, until nothing is left.
        """
        size = batch_in_force(self._world.horizon.read(), desired)
        self._largest_batch = max(self._largest_batch, size)
        return self.batch(desired, self._largest_batch)

    def forget_largest_batch(self) -> None:
        """Learners have given back what they had for batches: one did not fit."""
        self._largest_batch = 0

    def batch(self, desired: DesiredState, size: int | None = None) -> float:
        """What one batch of every learner needs: of that size, or of the size in force."""
        horizon = self._world.horizon.read()
        size = batch_in_force(horizon, desired) if size is None else size
        one = equations.batch_memory(size, horizon.base_size, horizon.base_bytes)
        return desired.learning.processes * one

    def largest_batch(self, desired: DesiredState) -> float:
        """What one batch of every learner needs at most (Eq. 1)."""
        return self.batch(desired, equations.LARGEST_IN_SMALLEST * desired.learning.update_size)
