"""A stand-in for the daemon that a coordinator works on, on a virtual clock."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from rtagent.clock import VirtualClock
from rtagent.config_sources import parse_config
from rtagent.memory.control import DesiredState
from rtagent.memory.horizon import HorizonRecord
from rtagent.memory.meter import Measured
from rtagent.memory.process_metrics import FinishedEpisode, ProcessMetrics
from rtagent.memory.usage import Level
from rtagent.r3.coordinator import Coordinator
from rtagent.r3.publication import Changes
from tests.conftest import make_blueprint, private
from tests.desired import with_changes

MIB = 1 << 20
TICK_BYTES = 10_000
RESERVE_TICKS = 100
FIXED_BYTES = 20 * MIB
BASE_BYTES = 4 * MIB
WORKERS_BYTES = 200 * MIB
CALM = Level("machine", 8000 * MIB, 6000 * MIB)


class Rings:
    """The memory of rings that follow their limit, as `WorldMemory` reports it."""

    bytes_per_tick = TICK_BYTES

    def __init__(self, capacity: int) -> None:
        self.capacity, self.ticks, self.limit = capacity, 0, capacity

    def pages(self) -> dict[str, int]:
        held = min(self.ticks, self.limit) + RESERVE_TICKS
        size = min(held, self.capacity) * TICK_BYTES
        return {"frames": size - size // 10, "ledger": size // 10, "weights": FIXED_BYTES}

    def ticks_in(self, size: int) -> int:
        ticks = size // TICK_BYTES
        return self.capacity if ticks >= self.capacity else ticks - RESERVE_TICKS


class FakeLock:
    """Stands in for a `RobustLock`: free or taken."""

    def __init__(self) -> None:
        self.taken = False
        self.held = False

    def try_enter(self) -> bool:
        self.held = not self.taken
        return self.held

    def leave(self) -> None:
        assert self.held
        self.held = False


class Daemon:
    """Everything that a coordinator reads, under the control of a test."""

    def __init__(
        self, capacity: int = 100_000, learners: int = 1, base_bytes: int = BASE_BYTES, **r3: Any
    ) -> None:
        self.config = parse_config(
            {"replay": {"capacity": capacity}, "learning": {"learning_starts": 500}, "r3": r3}
        )
        self.horizon = private(HorizonRecord)
        self.metrics = private(ProcessMetrics)
        self.metrics.environment.ready = 1
        for record in (*self.metrics.inference[:2], *self.metrics.learners[:learners]):
            record.ready = 1
        self.lock = FakeLock()
        self.world = SimpleNamespace(
            metrics=self.metrics, horizon=self.horizon, blueprint=make_blueprint(),
            turns=SimpleNamespace(lock=self.lock),
        )
        self.desired = with_changes(
            DesiredState(self.config, 2, 2, list(range(learners))), learning={"processes": learners}
        )
        self.rings = Rings(capacity)
        self.clock = VirtualClock(1000.0)
        self.private = WORKERS_BYTES
        self.levels = [CALM]
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.coordinator = self.coordinate()
        self.rings.limit = self.coordinator.ticks_limit
        self.coordinator._keeper.note_base(base_bytes, 32)

    def coordinate(self) -> Coordinator:
        return Coordinator(
            self.rings, self.world, self.config, self.clock,  # type: ignore[arg-type]
            lambda kind, **details: self.events.append((kind, details)),
            lambda: [1], lambda pids, everybody: Measured(self.private, everybody),
            lambda: self.levels,
        )

    def run(self, seconds: float, ticks_per_s: int = 0, settled: bool = True) -> Changes | None:
        """Call the coordinator ten times a second; returns the last change."""
        last = None
        for _ in range(round(10 * seconds)):
            self.clock.advance(0.1)
            self.rings.ticks += ticks_per_s // 10
            changes = self.coordinator.step(self.clock.now(), self.desired, settled=settled)
            if changes is not None:
                last = changes
                self.rings.limit = changes.ticks_limit
        return last

    def finish_episode(self, length: int, value: float) -> Changes | None:
        """An episode ends, and the coordinator is called; returns its change."""
        count = self.metrics.environment.episodes.count
        self.metrics.environment.episodes.append(FinishedEpisode(0, length, value, count))
        return self.run(0.1)

    @property
    def used(self) -> int:
        """Memory in use, as measured from the outside."""
        return self.private + sum(self.rings.pages().values())

    def events_of(self, kind: str) -> list[dict[str, Any]]:
        return [details for name, details in self.events if name == kind]
