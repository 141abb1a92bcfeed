"""The memory of a run that a test writes, and what is read from it."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from rtagent.clock import NANO, VirtualClock
from rtagent.config_sources import parse_config
from rtagent.memory.blueprint import TensorSpec
from rtagent.memory.process_metrics import Registration
from rtagent.memory.world import World, WorldMemory
from rtagent.staggering.arbiter import Deposited, Source
from rtagent.telemetry.stats import StatsReader
from tests.conftest import make_blueprint
from tests.desired import make_desired
from tests.rows import write_row

RATE_HZ = 50.0
PERIOD_NS = 20_000_000
CAPACITY = 8192
PARAMETERS = 4
START_NS = 1000 * NANO
DEFAULT, AGENT, REUSED = Source.DEFAULT, Source.AGENT, Source.REUSED


class Run:
    """The memory of a run that the test writes, and a reader of its figures."""

    def __init__(self, shapes: Mapping[str, Any] | None = None, **config: Any) -> None:
        tensors = (TensorSpec("w", (PARAMETERS,)),)
        blueprint = make_blueprint(rate_hz=RATE_HZ, tensors=tensors, **(shapes or {}))
        memory = WorldMemory(parse_config({"replay": {"capacity": CAPACITY}, **config}), blueprint)
        self.world = World(memory.handles)
        weakref.finalize(self.world, memory.close)
        self.clock = VirtualClock(START_NS / NANO)
        self.order("adaptive")
        self.roles()
        self.reader = StatsReader(self.world, self.clock)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.world, name)

    def order(self, algorithm: str, **settings: Any) -> None:
        wanted = {"algorithm": algorithm, **settings}
        self.control.write(make_desired(processes=2, rows=2, inference=wanted, go=True))

    def roles(self, *roles: dict[str, Any]) -> None:
        self.status.write({"roles": list(roles)})

    def running(self, inference: int, learner: int = 0) -> None:
        """Have so many processes of each role run."""
        self.roles(*(
            {"role": role, "index": index, "pid": 7 + index, "state": "running", "restarts": 0}
            for role, count in (("inference", inference), ("learner", learner))
            for index in range(count)
        ))

    def begin(self) -> Run:
        """Have its clock begin."""
        record = self.metrics.environment
        record.first_due_ns = record.anchor_ns = START_NS
        return self

    def tick(
        self, tick: int, source: Source = DEFAULT, observed: int = -1, late_ns: int = 0,
        action: Any = 0, slipped_ns: int = 0, reward: float = 0.0, position: int = 0,
    ) -> None:
        """One tick, as the environment process runs it."""
        record, name = self.metrics.environment, source.name.lower()
        setattr(record, name, getattr(record, name) + 1)
        record.decisions += source == AGENT
        time_ns = START_NS + tick * PERIOD_NS + slipped_ns + late_ns
        write_row(
            self.ledger, tick, observed=observed, time_ns=time_ns, lateness_ns=late_ns,
            reward=reward, source=source, action=action, position=position,
        )
        self.clock.sleep_until(time_ns / NANO)

    def deposit(self, tick: int, at_s: float, worker: int = 0) -> None:
        self.metrics.inference[worker].inferences += 1
        self.actions.deposit(Deposited(worker, tick - 5, tick, 0, 0, START_NS / NANO + at_s))
        record = self.metrics.inference[worker]
        record.registrations.append(Registration(START_NS + round(at_s * NANO), NANO // 100, tick))

    def figures(self) -> SimpleNamespace:
        return SimpleNamespace(**self.reader.collect())
