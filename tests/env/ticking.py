"""The parts of an environment process: a world that obeys the test, memory, a clock."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from rtagent.clock import NANO, VirtualClock
from rtagent.config import EnvConfig
from rtagent.env.actions import actions_for
from rtagent.env.adapter import Step
from rtagent.env.default_action import DefaultBehaviour
from rtagent.env.process import TickLoop
from rtagent.env.wall_clock import TickSchedule
from rtagent.memory.actions import ActionSlots
from rtagent.memory.blueprint import Blueprint
from rtagent.memory.ledger import TERMINATED, TRUNCATED
from rtagent.memory.process_metrics import Doing, ProcessMetrics
from rtagent.staggering.arbiter import Arbiter, Deposited
from tests.conftest import private
from tests.rows import private_rings

CAPACITY = 256
RATE_HZ = 50.0
PERIOD_S = 0.02
ANCHOR_S = 2.0


class StubWorld:
    """Shows the number of its step; ends an episode where the test says so."""

    actions = actions_for(gym.spaces.Discrete(3))
    noop_action = 0
    rate_hz = RATE_HZ

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.received: list[Any] = []
        self.resets: list[int | None] = []
        self.ends: dict[int, int] = {}
        self.step_s = self.reset_s = 0.0
        self.record: Any = None
        self.doing: list[tuple[str, Doing, float]] = []
        self.faults = self.cuts = 0

    def reset(self, seed: int | None = None) -> np.ndarray:
        self.resets.append(seed)
        self.note("reset")
        self.clock.advance(self.reset_s)
        return np.zeros((6, 5), np.uint8)

    def step(self, action: Any) -> Step:
        number = len(self.received)
        self.received.append(action)
        self.note("step")
        self.clock.advance(self.step_s)
        flags = self.ends.get(number, 0)
        return Step(
            np.full((6, 5), number + 1, np.uint8), number / 2,
            bool(flags & TERMINATED), bool(flags & TRUNCATED),
        )

    def note(self, call: str) -> None:
        """Keep what the metrics say while the world is called, and since when, in seconds."""
        doing, since_ns = self.record.doing
        self.doing.append((call, doing, self.clock.now() - since_ns / NANO))


class Memory:
    """The shared memory of one run, in this process."""

    def __init__(self, blueprint: Blueprint) -> None:
        self.frames, self.ledger = private_rings(blueprint, CAPACITY)
        self.actions = ActionSlots.private(blueprint)
        self.record = private(ProcessMetrics).environment
        self.states = None
        self.first_tick = 0


class Run:
    """One life of the environment process, up to its loop."""

    def __init__(
        self, memory: Memory, *, default: str | int = "noop", most: int = 5, fill: int = 2,
        start_s: float = ANCHOR_S - 1.0, anchor_s: float = ANCHOR_S,
    ) -> None:
        self.memory = memory
        self.clock = VirtualClock(start_s)
        self.world = StubWorld(self.clock)
        self.world.record = memory.record
        first = memory.ledger.newest + 1
        self.schedule = TickSchedule(RATE_HZ, round(anchor_s * NANO), first, most)
        behaviour = DefaultBehaviour(EnvConfig(default_action=default), self.world)  # type: ignore[arg-type]
        self.loop = TickLoop(
            self.world,  # type: ignore[arg-type]
            behaviour, frames=memory.frames, ledger=memory.ledger, actions=memory.actions,
            record=memory.record, schedule=self.schedule, arbiter=Arbiter(fill), clock=self.clock,
            seed=11,
        )

    def ticks(self, count: int) -> None:
        for _ in range(count):
            self.loop.run_next()

    def deposit(self, tick: int, action: int = 1, frame: int | None = None) -> None:
        seen = tick - 1 if frame is None else frame
        self.memory.actions.deposit(Deposited(3, seen, tick, action, 42, tick / 8, -tick / 4))

    def rows(self) -> Any:
        ledger = self.memory.ledger
        return ledger.read(0, ledger.newest + 1)

    def check_rows(self, **columns: list[Any]) -> None:
        rows = self.rows()
        assert {name: rows[name].tolist() for name in columns} == columns
