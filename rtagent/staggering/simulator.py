"""Staggering in virtual time: the generators and the arbiter that run live, without the world.

A discrete-event simulation. Ticks and the ends of waits and inferences are events; whatever an
algorithm asks for that needs no waiting is answered on the spot. At equal times the tick comes
first: an action registered at the very moment of a tick has missed it.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rtagent.config import GAME_BOY_HZ
from rtagent.staggering.arbiter import Arbiter, Deposited, Source
from rtagent.staggering.figures import ActionRecord, Figures, TickRecord, figures
from rtagent.staggering.inference_times import InferenceTimes, Slowdown
from rtagent.staggering.instructions import (
    Algorithm,
    Deposit,
    Infer,
    Inferred,
    Instruction,
    Moment,
    Now,
    Reply,
    WaitFrame,
    WaitUntil,
)
from rtagent.staggering.register import ALGORITHMS
from rtagent.staggering.state import StaggerState

_BLOCK = 4096
_START_PHASE = 0.37
"""Ticks after tick 0 at which the processes start: in step with each other, not with the ticks."""


@dataclass(frozen=True, slots=True)
class SetProcesses:
    """From second `at` on, N is `processes`; who leaves finishes its inference, then idles."""

    at: float
    processes: int


@dataclass(frozen=True, slots=True)
class Kill:
    """At second `at` the process of `worker` is killed; nobody is told."""

    at: float
    worker: int


@dataclass(frozen=True, slots=True)
class Restart:
    """At second `at` a new process takes the place of `worker`."""

    at: float
    worker: int


@dataclass(frozen=True, slots=True)
class Outlier:
    """The first inference that starts after second `at` takes `factor` times as long."""

    at: float
    factor: float


@dataclass(frozen=True, slots=True)
class Disturb:
    """At second `at` something is done to the shared state: an owner's decision, or damage."""

    at: float
    apply: Callable[[StaggerState], None]


Event = SetProcesses | Kill | Restart | Outlier | Slowdown | Disturb


@dataclass(frozen=True, slots=True)
class SimulationConfig:
    """One simulated run.

    Attributes:
        algorithm: a name of `register.ALGORITHMS`.
        processes: N.
        inference_ticks: x, the mean inference time in ticks.
        distribution, spread: see `inference_times`.
        seconds: length of the run.
        rate_hz: ticks per second.
        fill: see `arbiter`.
        sleep_overshoot_s: mean of the exponential oversleep of every wait.
        tick_jitter_s: mean of the exponential lateness of every tick.
        events: what happens meanwhile.
    """

    algorithm: str = "adaptive"
    processes: int = 6
    inference_ticks: float = 5.0
    distribution: str = "constant"
    spread: float = 0.0
    seconds: float = 180.0
    rate_hz: float = GAME_BOY_HZ
    fill: int = 2
    sleep_overshoot_s: float = 100e-6
    tick_jitter_s: float = 200e-6
    events: tuple[Event, ...] = ()

    def __post_init__(self) -> None:
        for name in ("inference_ticks", "seconds", "rate_hz"):
            if not 0.0 < getattr(self, name) < float("inf"):
                raise ValueError(f"{name}: must be positive and finite")
        for name in ("fill", "sleep_overshoot_s", "tick_jitter_s"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name}: must not be negative")

    @property
    def tick_seconds(self) -> float:
        """tau_M."""
        return 1.0 / self.rate_hz


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """What was executed, and what was registered.

    Attributes:
        config: the run.
        ticks: one record per tick.
        actions: one record per registered action, in order of registration.
    """

    config: SimulationConfig
    ticks: Sequence[TickRecord]
    actions: Sequence[ActionRecord]

    def figures(self, since: float | None = None, until: float | None = None) -> Figures:
        """The figures between two moments in seconds; the second half if none are given.

        `converged_s` counts from the start of the run in any case.
        """
        since = self.config.seconds / 2.0 if since is None else since
        until = self.config.seconds if until is None else until
        ticks = [record for record in self.ticks if since <= record.at < until]
        actions = [action for action in self.actions if since <= action.registered_at < until]
        return figures(ticks, actions, self.config.tick_seconds, self.ticks)

    def lost(self, since: float = 0.0, until: float = float("inf")) -> tuple[int, int]:
        """Ticks of inaction between two moments: (default, default or re-used)."""
        sources = [record.source for record in self.ticks if since <= record.at < until]
        default = sources.count(Source.DEFAULT)
        return default, default + sources.count(Source.REUSED)


def simulate(config: SimulationConfig, rng: np.random.Generator) -> SimulationResult:
    """Run `config`; the same generator state gives the same result."""
    return Simulation(config, rng).run()


class _Shelf:
    """The deposits as the arbiter looks them up, and which of them were executed."""

    def __init__(self) -> None:
        self._by_tick: defaultdict[int, list[Deposited]] = defaultdict(list)
        self._newest_late: Deposited | None = None
        self.deposits: list[Deposited] = []
        self.executed: set[int] = set()

    def put(self, deposit: Deposited, newest_tick: int) -> None:
        self.deposits.append(deposit)
        if deposit.tick > newest_tick:
            self._by_tick[deposit.tick].append(deposit)
        elif self._newest_late is None or deposit.frame > self._newest_late.frame:
            # One that was registered in time and not executed is older than the one that was.
            self._newest_late = deposit

    def at(self, tick: int) -> Sequence[Deposited]:
        return self._by_tick.get(tick, ())

    def late(self, tick: int, newer_than_frame: int) -> Deposited | None:
        late = self._newest_late
        return late if late is not None and late.frame > newer_than_frame else None

    def forget(self, tick: int) -> None:
        self._by_tick.pop(tick, None)


@dataclass(slots=True)
class _Worker:
    """A simulated inference process."""

    number: int
    algorithm: Algorithm
    alive: bool = True


class _Thought(NamedTuple):
    """An inference under way."""

    frame: int
    tau: float


class Simulation:
    """The moving parts of one run."""

    def __init__(self, config: SimulationConfig, rng: np.random.Generator) -> None:
        self.config = config
        self.state = StaggerState(bytearray(StaggerState.nbytes()))
        self.state.reset(config.algorithm, 0.0, config.processes)
        self._now, self._newest, self._order = 0.0, -1, 0
        self._due: list[tuple[float, int, _Worker, _Thought | None]] = []
        self._waiting: defaultdict[int, list[_Worker]] = defaultdict(list)
        self._workers: dict[int, _Worker] = {}
        slowdowns = [event for event in config.events if isinstance(event, Slowdown)]
        self._tau = InferenceTimes(
            config.inference_ticks * config.tick_seconds, config.distribution, config.spread,
            config.seconds, slowdowns, rng,
        )
        self._script = sorted(
            (event for event in config.events if not isinstance(event, Slowdown)),
            key=lambda event: event.at,
        )
        self._outliers: list[float] = []
        self._overshoot = _exponential(config.sleep_overshoot_s, rng)
        count = int(config.seconds * config.rate_hz)
        on_time = np.arange(count) * config.tick_seconds
        lateness = rng.exponential(config.tick_jitter_s, count) if config.tick_jitter_s else 0.0
        late = on_time + np.minimum(lateness, 0.9 * config.tick_seconds)
        self._tick_times: list[float] = late.tolist()
        self._shelf = _Shelf()

    def run(self) -> SimulationResult:
        """Simulate every tick."""
        start = _START_PHASE * self.config.tick_seconds
        self._script[:0] = [Restart(start, worker) for worker in self.state.membership.ring]
        arbiter = Arbiter(self.config.fill)
        records: list[TickRecord] = []
        for tick, at in enumerate(self._tick_times):
            self._advance(at)
            choice = arbiter.choose(tick, self._shelf)
            delay = 0 if choice.payload is None else tick - choice.frame
            records.append(TickRecord(tick, choice.source, delay, choice.frame, at))
            if choice.payload is not None:
                self._shelf.executed.add(id(choice.payload))
            self._publish(tick)
        actions = [
            ActionRecord(deposit.registered_at, id(deposit) in self._shelf.executed)
            for deposit in self._shelf.deposits
        ]
        return SimulationResult(self.config, records, actions)

    def _advance(self, until: float) -> None:
        """Everything that happens before the tick at `until`."""
        due = self._due
        while self._script and self._script[0].at < until:
            event = self._script.pop(0)
            self._advance(event.at)
            self._now = max(self._now, event.at)
            self._happen(event)
        while due and due[0][0] < until:
            self._now, _, worker, ended = heapq.heappop(due)
            if worker.alive:
                self._resume(worker, ended)
        self._now = until

    def _publish(self, tick: int) -> None:
        self._newest = tick
        self._shelf.forget(tick)
        for worker in self._waiting.pop(tick, ()):
            self._schedule(self._now + next(self._overshoot), worker)

    def _schedule(self, at: float, worker: _Worker, ended: _Thought | None = None) -> None:
        self._order += 1
        heapq.heappush(self._due, (at, self._order, worker, ended))

    def _happen(self, event: SetProcesses | Kill | Restart | Outlier | Disturb) -> None:
        if isinstance(event, Outlier):
            self._outliers.append(event.factor)
        elif isinstance(event, Disturb):
            event.apply(self.state)
        elif isinstance(event, Kill):
            self._kill(event.worker)
        elif isinstance(event, Restart):
            self._kill(event.worker)
            self._start(event.worker)
        else:
            for worker in range(event.processes):
                self.state.join(worker, self._now)
                if worker not in self._workers:
                    self._start(worker)
            for worker in set(self.state.membership.ring) - set(range(event.processes)):
                self.state.leave(worker, self._now)

    def _kill(self, number: int) -> None:
        worker = self._workers.pop(number, None)
        if worker is not None:
            worker.alive = False
            worker.algorithm.close()

    def _start(self, number: int) -> None:
        worker = _Worker(number, self._algorithm(number))
        self._workers[number] = worker
        self._perform(worker, next(worker.algorithm))

    def _algorithm(self, number: int) -> Algorithm:
        factory = ALGORITHMS[self.state.algorithm]
        return factory(number, self.state, nullcontext(), self.config.tick_seconds)

    def _resume(self, worker: _Worker, ended: _Thought | None) -> None:
        """An inference has ended, or a wait."""
        reply: Reply = self._moment()
        if ended is not None:
            reply = Inferred(ended.frame, ended.tau, self._now, self._newest)
        self._perform(worker, self._send(worker, reply))

    def _send(self, worker: _Worker, reply: Reply) -> Instruction:
        try:
            return worker.algorithm.send(reply)
        except StopIteration:
            worker.algorithm = self._algorithm(worker.number)
            return next(worker.algorithm)

    def _perform(self, worker: _Worker, instruction: Instruction) -> None:
        """Carry out instructions until one takes time."""
        while True:
            match instruction:
                case Infer():
                    return self._infer(worker, instruction.frame)
                case WaitFrame() if instruction.frame > self._newest:
                    return self._waiting[instruction.frame].append(worker)
                case WaitUntil() if instruction.when > self._now:
                    return self._schedule(instruction.when + next(self._overshoot), worker)
                case Deposit():
                    deposit = Deposited(
                        worker.number, instruction.frame, instruction.tick, None, 0, self._now
                    )
                    self._shelf.put(deposit, self._newest)
                case Now() | WaitFrame() | WaitUntil():
                    pass
            instruction = self._send(worker, self._moment())

    def _infer(self, worker: _Worker, frame: int | None) -> None:
        seen = self._newest if frame is None else min(frame, self._newest)
        tau = self._tau.draw(self._now)
        if self._outliers:
            tau *= self._outliers.pop()
        self._schedule(self._now + tau, worker, _Thought(seen, tau))

    def _moment(self) -> Moment:
        return Moment(self._now, self._newest)


def _exponential(mean: float, rng: np.random.Generator) -> Iterator[float]:
    while True:
        yield from (rng.exponential(mean, _BLOCK) if mean else np.zeros(_BLOCK)).tolist()
