"""The runtime coordinator of R3 (Li et al., Sec. III-D): who may use how much memory.

The supervisor asks it ten times a second. It measures what the daemon uses (`memory/usage.py` says
what counts), divides what the processes themselves leave of the budget between batches and replay,
anew after every episode (Eqs. 4 to 6), and says how many ticks the replay may keep (Eq. 3). Because
each division starts from the measured total, whatever was estimated wrongly is put right at the
next one: the replay gets what is really left. It shrinks at once and grows slowly.

Memory may also get short without a budget, or for reasons outside. A learner reports a batch that
did not fit; the machine or a control group is nearly full: then both reservations are halved, again
and again while it lasts, and grow back slowly afterwards.

The bounds are ours. Batches get no more than the largest of them can use (Eq. 1), and no less than
one of the smallest size for each learner; what they leave is the replay's, which keeps enough for
learning to go on. Between these bounds alpha and beta move the division, away from the one that
`r3.batch_share` names and back to it within some `r3.window` episodes: Eq. 5 alone only ever adds,
nearly always to the replay, and would in time leave every batch at the smallest size
(`r3.scale_reservations`). Without a budget nothing is divided.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from rtagent.clock import Clock
from rtagent.config import Config
from rtagent.memory.board import recent_episodes
from rtagent.memory.control import Orders
from rtagent.memory.horizon import Reservations
from rtagent.memory.usage import Level, memory_levels, private_bytes
from rtagent.memory.world import World
from rtagent.r3 import equations
from rtagent.r3.budget import AIM, Needs, ReplayMemory, ReplaySizes, check_budget
from rtagent.r3.controller import HorizonKeeper, batch_in_force
from rtagent.r3.events import HorizonNews

NANO = 1e9
RINGS = ("frames", "ledger")
"""Arenas that follow the limit."""
MEASURE_EVERY_S = 1.0
GROWTH = 1.02
"""The replay, and what was given up, grow by this per second at most."""
SHRINK_EVERY_S = 0.5
PUNCHING_S = 2.0
"""While memory is still being given back, the next halving waits so long."""
CALM_S = 10.0
"""Nothing is taken back for so long after something was given up."""
WORTH_TELLING = 0.02
"""A reservation that has changed by less since the last event is no event."""
TOLERANCE = 1.02
"""The budget counts as exceeded beyond this share of it."""


class NotMeasured(Exception):
    """The memory of the processes has not been measured yet."""


@dataclass(frozen=True)
class Changes:
    """What the supervisor must put in force.

    Attributes:
        batch_bytes: reserved for the batches of each learner; None: no limit.
        ticks_limit: ticks that the replay may keep.
        urgent: memory is short: give it back as fast as possible.
    """

    batch_bytes: int | None
    ticks_limit: int
    urgent: bool = False


class Coordinator:
    """Divides the memory, and watches over it.

    Args:
        memory: the owner of the shared memory.
        world: the shared memory.
        config: budget, window, shares; replay.capacity; learning_starts.
        clock: time.
        event: reports something worth remembering: event(kind, **details).
        pids: the processes of the daemon at this moment.
        levels: how full machine and control groups are.
        private: memory of processes, without what is shared; None: it is not known yet.
    """

    def __init__(
        self,
        memory: ReplayMemory,
        world: World,
        config: Config,
        clock: Clock,
        event: Callable[..., None],
        pids: Callable[[], Iterable[int]],
        levels: Callable[[], Sequence[Level]] = memory_levels,
        private: Callable[[Iterable[int]], int | None] = private_bytes,
    ) -> None:
        self._memory = memory
        self._world = world
        self._r3 = config.r3
        self._clock = clock
        self._event = event
        self._pids = pids
        self._levels = levels
        self._private_bytes = private
        self._keeper = HorizonKeeper(world.horizon, config.r3)
        self._capacity = config.replay.capacity
        self._sizes = ReplaySizes(memory, world.blueprint, config)
        self._seconds: deque[float] = deque(maxlen=config.r3.window)
        self._returns: deque[float] = deque(maxlen=config.r3.window)
        self._reservations, self._written = Reservations(), Reservations()
        self._private = -1
        self._newest: int | None = None
        self._largest_batch = 0
        self._batch: float | None = None
        self._replay: float | None = None
        self._scales = (1.0, 1.0)
        self._ceiling: float | None = None
        self._accepted = self._excessive = self._urgent = False
        self._calm = True
        self._shape = (-1, -1)
        self._next_measurement = self._shrunk_at = -math.inf
        self._divided_at = clock.now()
        self._episodes = self._failures = 0
        self._news = HorizonNews(world.horizon, clock, event)
        self._budget = _bytes(config.r3.memory_budget_mb)
        limit = self._capacity if self._budget is None else self._sizes.ticks_in(self._budget)
        self._order = self._told = Changes(None, limit)

    @property
    def ticks_limit(self) -> int:
        """Ticks that the replay may keep now."""
        return self._order.ticks_limit

    def step(self, now: float, orders: Orders, *, settled: bool = True) -> Changes | None:
        """Look at everything once; called about ten times a second.

        Args:
            now: seconds.
            orders: in force.
            settled: whether the rings have given back all that the last limit asked for; until
                they have, a measurement would count it twice.

        Returns:
            What is to be put in force; None if nothing has changed.

        Raises:
            UserError: at the first measurement, if the budget is below what the workers need.
        """
        self._advance_horizon(orders)
        before, self._urgent = self._order, False
        self._watch(now, orders, settled)
        measured = settled and self._measure(now, orders)
        shape, self._shape = self._shape, (orders.learners, orders.batch_size)
        news = self._see_episodes() or shape != self._shape
        if self._private >= 0 and settled and (measured or news):
            self._divide(now, orders)
        self._publish(orders)
        if measured:
            self._tell()
        return replace(self._order, urgent=self._urgent) if self._order != before else None

    def set_budget(self, megabytes: int | None, orders: Orders) -> None:
        """Change the budget; the next step divides it.

        Args:
            megabytes: MiB; None: no budget.
            orders: in force.

        Raises:
            UserError: it is below what the workers need; nothing has changed.
            NotMeasured: what they need is not known yet, but will be in a moment.
        """
        if self._newest is None:
            raise NotMeasured
        self._private = self._newest
        budget = _bytes(megabytes)
        if budget is not None:
            check_budget(budget, self._needs(orders))
        self._budget, self._accepted = budget, True
        self._next_measurement = -math.inf

    # ---- the horizon

    def _advance_horizon(self, orders: Orders) -> None:
        """Notice a deadline that passes while nobody learns, and tell how horizons ended."""
        record, lock = self._world.horizon, self._world.turns.lock
        if lock.try_enter():
            try:
                now_ns, updates = int(self._clock.now() * NANO), record.read().updates
                self._keeper.advance(now_ns, 0, updates, self._world.board.environment, orders)
            finally:
                lock.leave()
        self._news.tell()

    # ---- shortage

    def _watch(self, now: float, orders: Orders, settled: bool) -> None:
        """Halve the reservations if memory has run out, or is about to."""
        failures = int(self._world.board.learners["out_of_memory"].sum())
        if failures > self._failures:
            self._failures, self._largest_batch = failures, 0
            self._halve(now, orders, "out_of_memory", batches_that_did_not_fit=failures)
        levels = self._levels()
        self._calm = all(level.calm for level in levels)
        short = [level for level in levels if level.short]
        patience = SHRINK_EVERY_S if settled else PUNCHING_S
        if short and now - self._shrunk_at >= patience:
            level = min(short, key=lambda level: level.available)
            if self._halve(
                now, orders, "memory_pressure", where=level.name, available_bytes=level.available,
                floor_bytes=level.floor, stalled_percent=level.stalled_percent,
            ):
                self._reservations.pressure_events += 1

    def _halve(self, now: float, orders: Orders, kind: str, **inputs: Any) -> bool:
        """Halve what batches and replay may have, or have if that is less; whether that helps."""
        held, in_use, before = self._held(), self._batch_memory(orders), self._order
        replay = held if self._replay is None else min(self._replay, held)
        batch = in_use if self._batch is None else min(self._batch, in_use)
        self._replay = max(replay / 2, self._sizes.least_bytes)
        self._batch = max(batch / 2, self._batch_memory(orders, 1))
        self._ceiling = self._replay + self._batch
        self._shrunk_at = now
        self._set_order(orders, min(before.ticks_limit, self._sizes.ticks_in(self._replay)))
        if self._order == before:
            return False
        self._urgent = True
        self._event(
            kind, **inputs, replay_bytes=int(self._replay), batch_bytes=int(self._batch),
            ticks_limit=self._order.ticks_limit, ticks_limit_before=before.ticks_limit,
        )
        return True

    # ---- measuring

    def _measure(self, now: float, orders: Orders) -> bool:
        """Take in a new measurement of the processes, if there is one and all are there."""
        if now < self._next_measurement:
            return False
        private = self._private_bytes(self._pids())
        if private is None:
            return False
        self._next_measurement = now + MEASURE_EVERY_S
        self._newest = private
        if not self._ready(orders):
            return False
        self._private = private
        if self._budget is not None and not self._accepted:
            check_budget(self._budget, self._needs(orders))
        self._accepted = True
        return True

    def _ready(self, orders: Orders) -> bool:
        """Whether every worker is there, so that what they need can be measured."""
        board = self._world.board
        ready = [
            board.environment["ready"],
            board.learners["ready"][: orders.learners],
            board.inference["ready"][: orders.processes],
        ]
        return all(bool(each.all()) for each in ready)

    def _held(self) -> int:
        """Bytes that the rings have now."""
        pages = self._memory.pages()
        return sum(pages[name] for name in RINGS)

    def _used(self) -> int:
        """Bytes that the daemon uses, as of the last measurement of its processes."""
        return self._private + sum(self._memory.pages().values())

    def _baseline(self, orders: Orders) -> int:
        """Of it, what is neither replay nor batches."""
        return int(self._used() - self._held() - self._batch_held(orders))

    def _batch_held(self, orders: Orders) -> float:
        """Bytes that learners have for batches: as much as the largest ones so far needed.

        A process keeps what it once had. If that counted as its baseline as soon as batches are
        smaller, there would be less for batches each time, until nothing is left.
        """
        size = batch_in_force(self._world.horizon.read(), orders)
        self._largest_batch = max(self._largest_batch, size)
        return self._batch_memory(orders, self._largest_batch)

    def _batch_memory(self, orders: Orders, size: int | None = None) -> float:
        """Bytes for one batch of every learner: of that size, or of the size in force."""
        horizon = self._world.horizon.read()
        size = batch_in_force(horizon, orders) if size is None else size
        return orders.learners * equations.batch_memory(size, horizon.base_size, horizon.base_bytes)

    def _needs(self, orders: Orders) -> Needs:
        return Needs(
            workers=self._baseline(orders),
            batches=int(self._batch_memory(orders, orders.batch_size)),
            replay=self._sizes.least_bytes,
            replay_ticks=self._sizes.least_ticks,
        )

    # ---- dividing

    def _see_episodes(self) -> bool:
        """Eqs. 4 and 5 for the episodes that have finished; whether any have."""
        environment = self._world.board.environment
        count = int(environment["episodes"][0])
        if count == self._episodes:
            return False
        tick_s = self._world.blueprint.tick_seconds
        for episode in recent_episodes(environment, count - self._episodes):
            seconds, value = float(episode["length"]) * tick_s, float(episode["return"])
            if not math.isfinite(value):
                continue
            alpha = equations.alpha(seconds, self._seconds)
            beta = equations.beta(value, self._returns)
            self._seconds.append(seconds)
            self._returns.append(value)
            self._reservations.alpha, self._reservations.beta = alpha, beta
            self._scales = equations.scale_reservations(self._scales, alpha, beta, self._r3.window)
        self._episodes = count
        return True

    def _divide(self, now: float, orders: Orders) -> None:
        """Eq. 6, its bounds, and Eq. 3."""
        growth = GROWTH ** (now - self._divided_at)
        self._divided_at = now
        total = self._total(now, orders, growth)
        if total is None:
            self._batch = self._replay = None
            self._set_order(orders, self._capacity)
            return
        largest = self._batch_memory(orders, equations.LARGEST_IN_SMALLEST * orders.batch_size)
        if self._ceiling is None or self._batch is None or self._replay is None:
            # A budget is accepted only if it holds batches of the smallest size.
            smallest = self._batch_memory(orders, orders.batch_size)
            batch = min(max(self._r3.batch_share * total, smallest), largest)
            more_batch, more_replay = self._scales
            batch, _ = equations.fit(batch * more_batch, (total - batch) * more_replay, total)
            batch = max(batch, smallest)
        else:
            batch, _ = equations.fit(self._batch, self._replay, total)
        self._batch = min(batch, largest, total - self._sizes.least_bytes)
        # What learners have kept from larger batches cannot hold frames.
        held = self._batch if self._ceiling else max(self._batch, self._batch_held(orders))
        self._replay = max(total - held, self._sizes.least_bytes)
        limit, before = self._sizes.ticks_in(self._replay), self._order.ticks_limit
        self._set_order(orders, min(limit, math.ceil(before * growth)))

    def _total(self, now: float, orders: Orders, growth: float) -> float | None:
        """M: what batches and replay may have together; None: as much as they want."""
        least = self._sizes.least_bytes + self._batch_memory(orders, 1)
        if self._budget is None:
            largest = self._batch_memory(orders, equations.LARGEST_IN_SMALLEST * orders.batch_size)
            total = self._capacity * self._memory.bytes_per_tick + largest
        else:
            total = AIM * self._budget - self._baseline(orders)
        if self._ceiling is not None:
            if self._calm and now - self._shrunk_at >= CALM_S:
                self._ceiling *= growth
            if self._ceiling >= total:
                self._ceiling = None
                self._event("memory_recovered", total_bytes=int(total))
            else:
                return max(self._ceiling, least)
        return None if self._budget is None else max(total, least)

    # ---- telling

    def _set_order(self, orders: Orders, limit: int) -> None:
        batch = None
        if self._batch is not None and orders.learners and self._world.horizon.read().base_bytes:
            batch = math.ceil(self._batch / orders.learners)
        self._order = Changes(batch, limit)

    def _publish(self, orders: Orders) -> None:
        """Bring the reservations in shared memory up to date."""
        shown, measured = self._reservations, self._private >= 0
        shown.budget_bytes = -1 if self._budget is None else self._budget
        shown.used_bytes = self._used() if measured else -1
        shown.baseline_bytes = self._baseline(orders) if measured else -1
        batch = self._batch_memory(orders) if self._batch is None else self._batch
        shown.batch_bytes = int(batch)
        shown.replay_bytes = int(self._held() if self._replay is None else self._replay)
        shown.ticks_limit = self._order.ticks_limit
        if shown != self._written:
            self._world.horizon.reserve(shown)
            self._written = replace(shown)

    def _tell(self) -> None:
        """Report a division that differs from the last one told, and a budget exceeded."""
        shown, order, told = self._written, self._order, self._told
        if _differ(order.ticks_limit, told.ticks_limit) or _differ(
            order.batch_bytes, told.batch_bytes
        ):
            self._event("memory_division", **asdict(shown))
            self._told = order
        exceeded = self._budget is not None and shown.used_bytes > TOLERANCE * self._budget
        hopeless = exceeded and order.ticks_limit == self._sizes.least_ticks
        if hopeless and not self._excessive:
            self._event("memory_budget_exceeded", **asdict(shown))
        self._excessive = hopeless


def _differ(new: int | None, old: int | None) -> bool:
    if new is None or old is None:
        return new != old
    return abs(new - old) > WORTH_TELLING * old


def _bytes(megabytes: int | None) -> int | None:
    return None if megabytes is None else megabytes << 20
