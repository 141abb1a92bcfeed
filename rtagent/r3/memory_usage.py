"""The memory that the daemon uses, in total and by purpose; bytes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from rtagent.memory.control import DesiredState
from rtagent.memory.meter import Measured
from rtagent.memory.world import World, WorldMemory
from rtagent.r3 import equations
from rtagent.r3.controller import batch_in_force

RINGS = ("frames", "ledger")
"""The arenas of the replay, whose memory follows its limit."""
MEASURE_EVERY_S = 1.0
PATIENCE_S = 60.0
"""The longest wait for a worker that does not get ready: until all are measured, the replay alone
may fill the whole budget."""


class NotMeasured(Exception):
    """The memory of the processes has not been measured yet."""


class MemoryUsage:
    """Measures the processes once a second, and the shared memory whenever it is asked.

    Args:
        memory: the owner of the shared memory.
        world: the shared memory.
        pids: the processes of the daemon at this moment.
        private: the memory of processes without shared memory, see `MemoryMeter`; returns None
            while it is not known.
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
        self._ready_at: float | None = None
        self._largest_batch = 0

    @property
    def known(self) -> bool:
        """Whether the processes have been measured while every worker was ready, or failing."""
        return self._private is not None

    def measure(self, now: float, desired: DesiredState) -> bool:
        """Measure the processes once a second.

        Returns:
            Whether there is a new measurement, and every worker was ready or is not waited for.
        """
        if now < self._next:
            return False
        ready = self._ready(desired)
        if ready or self._ready_at is None:
            self._ready_at = now
        everybody = ready or now - self._ready_at > PATIENCE_S
        measured = self._measure_private(self._pids(), everybody)
        if measured is None:
            return False
        self._next = now + MEASURE_EVERY_S
        self._newest = measured.size
        if measured.complete:
            self._private = measured.size
        return measured.complete

    def accept_newest(self) -> None:
        """Use the newest measurement, even if not every worker was ready.

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
        """The memory of the rings now."""
        pages = self._memory.pages()
        return sum(pages[name] for name in RINGS)

    def total(self) -> int:
        """The memory of the daemon, as of the last measurement of its processes; -1: unknown."""
        return -1 if self._private is None else self._private + sum(self._memory.pages().values())

    def baseline(self, desired: DesiredState) -> int:
        """The part of the total that is neither replay nor batches; -1: unknown."""
        if not self.known:
            return -1
        return int(self.total() - self.replay() - self.batches(desired))

    def batches(self, desired: DesiredState) -> float:
        """The memory that learners keep for batches: that of the largest batches so far.

        A process keeps its memory when batches become smaller. If that counted as its baseline,
        there would be less for batches each time, until nothing is left.
        """
        size = batch_in_force(self._world.horizon.read(), desired)
        self._largest_batch = max(self._largest_batch, size)
        return self.batch(desired, self._largest_batch)

    def forget_largest_batch(self) -> None:
        """Forget the largest batch, for after a lack of memory learners have given it back."""
        self._largest_batch = 0

    def batch(self, desired: DesiredState, size: int | None = None) -> float:
        """The memory of one batch for every learner: of this size, or of the size in force."""
        horizon = self._world.horizon.read()
        size = batch_in_force(horizon, desired) if size is None else size
        one = equations.batch_memory(size, horizon.base_size, horizon.base_bytes)
        return desired.learning.processes * one

    def largest_batch(self, desired: DesiredState) -> float:
        """The memory of one batch of the largest size for every learner (Eq. 1)."""
        return self.batch(desired, equations.LARGEST_IN_SMALLEST * desired.learning.update_size)
