"""The runtime coordinator of R3 (Li et al., Sec. III-D): how much memory batches and replay get.

The supervisor calls it ten times a second. It measures what the daemon uses (`memory_usage.py`),
and divides what the processes leave of the budget between batches and replay, anew after every
episode (`division.py`, Eqs. 4 to 6); from that follows how many ticks the replay may keep (Eq. 3).
Each division starts from the measured total, so that an error of an estimate is corrected by the
next one: the replay gets what is really left. It shrinks at once and grows slowly.

Memory may also get short without a budget, or because of other programs (`pressure.py`): then both
reservations are halved, again and again while the shortage lasts, and grow back slowly afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from rtagent.clock import NANO, Clock
from rtagent.config import Config
from rtagent.memory.control import DesiredState
from rtagent.memory.horizon import Reservations
from rtagent.memory.meter import Measured
from rtagent.memory.usage import Level, memory_levels
from rtagent.memory.world import World, WorldMemory
from rtagent.r3.budget import ReplaySizes, check_budget
from rtagent.r3.controller import HorizonKeeper
from rtagent.r3.division import Division, EpisodeScales
from rtagent.r3.events import DecisionEvents
from rtagent.r3.memory_usage import MemoryUsage
from rtagent.r3.pressure import Pressure
from rtagent.r3.publication import Changes, Publication


class Coordinator:
    """Divides the memory between batches and replay, and reduces both if memory is short.

    Args:
        memory: the owner of the shared memory.
        world: the shared memory.
        config: budget, window, shares; replay.capacity; learning_starts.
        clock: time.
        event: sends an event: event(kind, **details).
        pids: the processes of the daemon at this moment.
        private: see `MemoryUsage`.
        levels: how full machine and control groups are.
    """

    def __init__(
        self, memory: WorldMemory, world: World, config: Config, clock: Clock,
        event: Callable[..., None], pids: Callable[[], Iterable[int]],
        private: Callable[[Iterable[int], bool], Measured | None],
        levels: Callable[[], Sequence[Level]] = memory_levels,
    ) -> None:
        self._world, self._clock, self._event = world, clock, event
        self._keeper = HorizonKeeper(world.horizon, config.r3)
        self._decisions = DecisionEvents(world.horizon, clock, event)
        self._sizes = ReplaySizes(memory, world.blueprint, config)
        self._usage = MemoryUsage(memory, world, pids, private)
        self._pressure = Pressure(world.metrics, levels)
        self._episodes = EpisodeScales(
            world.metrics.environment, world.blueprint.tick_seconds, config.r3.window
        )
        self._budget = _bytes(config.r3.memory_budget_mb)
        self._accepted = False
        self._division = Division(
            self._usage, self._sizes, config.r3, self._budget, clock.now(),
            lambda total: event("memory_recovered", total_bytes=int(total)),
        )
        self._limits = Changes(None, self._division.ticks_limit)
        self._publication = Publication(world.horizon, event, self._limits)
        self._learners = (-1, -1)
        self._pressure_events = 0

    @property
    def ticks_limit(self) -> int:
        """The number of ticks that the replay may keep now."""
        return self._limits.ticks_limit

    def step(self, now: float, desired: DesiredState, *, settled: bool = True) -> Changes | None:
        """Update horizon, measurements and division; called about ten times a second.

        Args:
            now: seconds.
            desired: in force.
            settled: whether the rings have returned all memory above the last limit; before that,
                a measurement would count this memory twice.

        Returns:
            The limits to put in force; None if they have not changed.

        Raises:
            UserError: at the first measurement, if the budget is below what the workers need.
        """
        before, learning = self._limits, desired.learning
        self._advance_horizon(desired)
        urgent = self._relieve(now, desired, settled)
        measured = settled and self._usage.measure(now, desired)
        if measured and not self._accepted:
            self._accept(self._budget, desired)
        learners, self._learners = self._learners, (learning.processes, learning.update_size)
        changed = self._episodes.update() or learners != self._learners
        if self._usage.known and settled and (measured or changed):
            self._divide(now, desired)
        self._publication.publish(self._reservations(desired))
        if measured:
            self._publication.report(self._limits, self._sizes.least_ticks)
        return replace(self._limits, urgent=urgent) if self._limits != before else None

    def set_budget(self, megabytes: int | None, desired: DesiredState) -> None:
        """Change the budget; the next step divides it.

        Args:
            megabytes: MiB. If None, no budget.
            desired: in force.

        Raises:
            UserError: it is below what the workers need; nothing has changed.
            NotMeasured: what the workers need is not known yet, but will be in a moment.
        """
        self._usage.accept_newest()
        self._accept(_bytes(megabytes), desired)
        self._usage.measure_soon()

    def _accept(self, budget: int | None, desired: DesiredState) -> None:
        """Put a budget in force, unless it is below what the workers need."""
        if budget is not None:
            batches = int(self._usage.batch(desired, desired.learning.update_size))
            check_budget(budget, self._usage.baseline(desired), batches, self._sizes)
        self._budget, self._accepted = budget, True

    def _advance_horizon(self, desired: DesiredState) -> None:
        """Notice a deadline that passes while no learner learns, and publish decisions."""
        record, lock = self._world.horizon, self._world.turns.lock
        if lock.try_enter():
            try:
                now_ns, updates = int(self._clock.now() * NANO), record.read().updates
                self._keeper.advance(now_ns, 0, updates, self._world.metrics.environment, desired)
            finally:
                lock.leave()
        self._decisions.publish()

    def _relieve(self, now: float, desired: DesiredState, settled: bool) -> bool:
        """Halve the reservations if memory is short; returns whether the limits have changed."""
        shortage = self._pressure.notice(now, settled=settled)
        if shortage is None:
            return False
        kind, inputs = shortage
        refused = kind == "out_of_memory"
        if refused:
            self._usage.forget_largest_batch()
        before = self._limits
        self._division.halve(desired, refused=refused)
        self._set_limits(desired)
        if self._limits == before:
            return False
        self._pressure_events += kind == "memory_pressure"
        self._event(
            kind, **inputs, replay_bytes=int(self._division.replay or 0),
            batch_bytes=int(self._division.batch or 0), ticks_limit=self._limits.ticks_limit,
            ticks_limit_before=before.ticks_limit,
        )
        return True

    def _divide(self, now: float, desired: DesiredState) -> None:
        recover = self._pressure.over(now)
        self._division.divide(now, desired, self._budget, self._episodes.scales, recover=recover)
        self._set_limits(desired)

    def _set_limits(self, desired: DesiredState) -> None:
        """Set the limits of each learner and of the rings by the division."""
        batch, each = self._division.batch, None
        learners = desired.learning.processes
        if batch is not None and learners and self._world.horizon.read().base_bytes:
            each = math.ceil(batch / learners)
        self._limits = Changes(each, self._division.ticks_limit)

    def _reservations(self, desired: DesiredState) -> Reservations:
        """The reservations to show: what is reserved, or without a limit what is used."""
        batch, replay = self._division.batch, self._division.replay
        return Reservations(
            budget_bytes=-1 if self._budget is None else self._budget,
            used_bytes=self._usage.total(), baseline_bytes=self._usage.baseline(desired),
            batch_bytes=int(self._usage.batch(desired) if batch is None else batch),
            replay_bytes=int(self._usage.replay() if replay is None else replay),
            ticks_limit=self._limits.ticks_limit, alpha=self._episodes.alpha,
            beta=self._episodes.beta, pressure_events=self._pressure_events,
        )


def _bytes(megabytes: int | None) -> int | None:
    return None if megabytes is None else megabytes << 20
