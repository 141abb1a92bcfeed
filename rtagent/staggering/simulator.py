"""Staggering in virtual time: the generators and the arbiter of a live run, without a world.

There are only ticks and inference times: the result is when actions come, and from which frame.
Whole runs are simulated by `rtagent.virtual`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from rtagent.clock import whole_ticks
from rtagent.config import GAME_BOY_HZ
from rtagent.staggering.arbiter import Arbiter, Deposited, Source
from rtagent.staggering.figures import ActionRecord, Figures, TickRecord, figures
from rtagent.staggering.inference_times import InferenceTimes, Slowdown
from rtagent.staggering.instructions import Deposit
from rtagent.staggering.register import ALGORITHMS
from rtagent.staggering.state import StaggerState
from rtagent.staggering.virtual_workers import VirtualWorkers, exponential

MOST = 1024
"""Processes that can be simulated; a machine runs at most `state.MAX_PROCESSES`."""
LONGEST_CHUNK = 1024
_START_PHASE = 0.37
"""Ticks after tick 0 at which processes and slots start: in step with each other, not with ticks.
"""


@dataclass(frozen=True, slots=True)
class SetProcesses:
    """From second `at` on, N is `processes`; a process that leaves finishes its inference."""

    at: float
    processes: int


@dataclass(frozen=True, slots=True)
class Kill:
    """At second `at` the process of `worker` is killed; the ring still names it."""

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
    """At second `at` the shared state is changed: by its owner, or by damage."""

    at: float
    apply: Callable[[StaggerState], None]


Event = SetProcesses | Kill | Restart | Outlier | Slowdown | Disturb


@dataclass(frozen=True, slots=True)
class SimulationConfig:
    """One simulated run.

    Attributes:
        algorithm: a name of `register.ALGORITHMS`.
        processes: N.
        inference_ticks: x, the inference time in ticks: its mean, unless outliers, a drift or a
            step make it longer.
        distribution, spread: see `inference_times`.
        seconds: length of the run.
        rate_hz: ticks per second.
        fill: see `arbiter`.
        chunk: how many consecutive ticks each inference answers with actions for.
        sleep_overshoot_s: mean of the exponential oversleep of every wait.
        tick_jitter_s: mean of the exponential lateness of every tick.
        step_ticks: ticks from the choice of a tick's action until its frame is published.
        events: changes during the run.
    """

    algorithm: str = "adaptive"
    processes: int = 6
    inference_ticks: float = 5.0
    distribution: str = "constant"
    spread: float = 0.0
    seconds: float = 180.0
    rate_hz: float = GAME_BOY_HZ
    fill: int = 2
    chunk: int = 1
    sleep_overshoot_s: float = 100e-6
    tick_jitter_s: float = 200e-6
    step_ticks: float = 0.0
    events: tuple[Event, ...] = ()

    def __post_init__(self) -> None:
        if self.algorithm not in ALGORITHMS:
            raise ValueError(f"algorithm: {self.algorithm!r} is none of {', '.join(ALGORITHMS)}")
        for name in ("inference_ticks", "seconds", "rate_hz"):
            if not 0.0 < getattr(self, name) < float("inf"):
                raise ValueError(f"{name}: must be positive and finite")
        if not 1 <= self.chunk <= LONGEST_CHUNK:
            raise ValueError(f"chunk: must be 1 to {LONGEST_CHUNK}")
        for name in ("fill", "sleep_overshoot_s", "tick_jitter_s"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name}: must not be negative")
        if not 0.0 <= self.step_ticks < 1.0:
            raise ValueError("step_ticks: must be at least 0, and below 1")

    @property
    def tick_seconds(self) -> float:
        """tau_M."""
        return 1.0 / self.rate_hz


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """What was executed, and what was registered.

    Attributes:
        config: of the run.
        ticks: one record per tick.
        actions: one record per registered action, in order of registration, but those that might
            have been executed after the end of the run.
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


class _ActionStore:
    """The deposits as the arbiter looks them up, and which inferences were acted on."""

    def __init__(self) -> None:
        self._by_tick: defaultdict[int, list[Deposited]] = defaultdict(list)
        self._newest_late: Deposited | None = None
        self.answers: list[Deposited] = []
        self.executed: set[tuple[int, float]] = set()

    def put(self, deposit: Deposited, newest_tick: int) -> None:
        if deposit.position == 0:
            self.answers.append(deposit)
        if deposit.tick > newest_tick:
            self._by_tick[deposit.tick].append(deposit)
        elif self._newest_late is None or deposit.frame >= self._newest_late.frame:
            # Deposits that were in time but not executed are older than what was executed.
            self._newest_late = deposit

    def at(self, tick: int) -> Sequence[Deposited]:
        return self._by_tick.get(tick, ())

    def late(self, tick: int, newer_than_frame: int) -> Deposited | None:
        late = self._newest_late
        return late if late is not None and late.frame > newer_than_frame else None

    def forget(self, tick: int) -> None:
        self._by_tick.pop(tick, None)


class Simulation:
    """The moving parts of one run."""

    def __init__(self, config: SimulationConfig, rng: np.random.Generator) -> None:
        self.config = config
        self.state = StaggerState(bytearray(StaggerState.nbytes(MOST)), MOST)
        self._start = _START_PHASE * config.tick_seconds
        self.state.reset(config.algorithm, self._start, config.processes)
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
        self._workers = VirtualWorkers(
            self.state, config.tick_seconds, exponential(config.sleep_overshoot_s, rng), self
        )
        count = whole_ticks(config.seconds, config.rate_hz)
        on_time = np.arange(count) * config.tick_seconds
        lateness = rng.exponential(config.tick_jitter_s, count) if config.tick_jitter_s else 0.0
        late = on_time + np.minimum(lateness, 0.9 * config.tick_seconds)
        self._tick_times: list[float] = late.tolist()
        self._store = _ActionStore()

    def run(self) -> SimulationResult:
        """Simulate every tick."""
        ring = self.state.membership.ring
        self._script[:0] = [Restart(self._start, worker) for worker in ring]
        arbiter = Arbiter(self.config.fill)
        records: list[TickRecord] = []
        ready = 0.0
        for tick, due in enumerate(self._tick_times):
            at = max(due, ready)
            self._advance(at)
            choice = arbiter.choose(tick, self._store)
            deposit, delay = choice.deposit, 0
            if choice.source != Source.DEFAULT:
                delay = tick - deposit.frame
                self._store.executed.add(_answer_of(deposit))
            records.append(
                TickRecord(tick, choice.source, delay, deposit.frame, at, deposit.position)
            )
            self._store.forget(tick)
            self._workers.chosen = tick
            ready = at + self.config.step_ticks * self.config.tick_seconds
            self._advance(ready)
            self._workers.publish(tick, ready - tick * self.config.tick_seconds)
        actions = []
        for deposit in self._store.answers:
            executed = _answer_of(deposit) in self._store.executed
            if executed or self._is_over(deposit, records[-1]):
                actions.append(ActionRecord(deposit.registered_at, executed))
        return SimulationResult(self.config, records, actions)

    def _is_over(self, answer: Deposited, newest: TickRecord) -> bool:
        """Whether no tick after the newest could execute an answer any more."""
        ahead = answer.tick + self.config.chunk - 1 > newest.tick
        return not ahead and answer.registered_at < newest.at

    # ---- what the workers do

    def infer(self, worker: int, frame: int) -> float:
        """Draw the time of an inference."""
        tau = self._tau.draw(self._workers.now)
        return tau * self._outliers.pop() if self._outliers else tau

    def deposit(self, worker: int, instruction: Deposit) -> None:
        """Keep the deposits of an inference."""
        now = self._workers.now
        for position in range(self.config.chunk):
            tick = instruction.tick + position
            deposit = Deposited(worker, instruction.frame, tick, None, 0, now, position=position)
            self._store.put(deposit, self._workers.chosen)

    def learn(self) -> float:
        """There are no updates."""
        return 0.0

    # ---- scripted events

    def _advance(self, until: float) -> None:
        """Let everything happen that is due before the tick at `until`."""
        while self._script and self._script[0].at < until:
            event = self._script.pop(0)
            self._workers.advance(max(event.at, self._workers.now))
            self._apply(event)
        self._workers.advance(until)

    def _apply(self, event: SetProcesses | Kill | Restart | Outlier | Disturb) -> None:
        workers = self._workers
        if isinstance(event, Outlier):
            self._outliers.append(event.factor)
        elif isinstance(event, Disturb):
            event.apply(self.state)
        elif isinstance(event, Kill):
            workers.kill(event.worker)
        elif isinstance(event, Restart):
            workers.start(event.worker)
        else:
            for worker in range(event.processes):
                self.state.join(worker, workers.now)
                workers.start_new(worker)
            for worker in set(self.state.membership.ring) - set(range(event.processes)):
                self.state.leave(worker, workers.now)


def _answer_of(deposit: Deposited) -> tuple[int, float]:
    """Identifies the inference that a deposit comes from."""
    return deposit.worker, deposit.registered_at
