"""A learner's world in this process's memory, in virtual time, under a test's control."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from rtagent.clock import Clock, VirtualClock
from rtagent.learning import learner
from rtagent.learning.beginning import publish_initial
from rtagent.learning.shared_update import SharedUpdate
from rtagent.memory.control import DesiredState
from rtagent.storage import checkpoint as checkpoints
from tests.desired import with_changes
from tests.rows import write_row

CAPACITY = 1000
BOX = spaces.Box(np.float32([-2.0, 0.0]), np.float32([2.0, 1.0]))
Start = Callable[..., "Run"]
SETTINGS: dict[str, Any] = {
    "learning": {"learning_starts": 50, "batch_size": 4, "publish_every": 5, "n_step": 2,
                 "prefetch": 0, "precision": "float32"},
    "replay": {"capacity": CAPACITY},
}


class Run:
    """A learner's shared memory, and the context that a worker process has, for a test to control.

    Attributes:
        on_beat: called with the number of beats so far.
    """

    def __init__(self, world: Any, folder: Path, resume: Path | None) -> None:
        self.world, self.config, self.blueprint = world, world.config, world.blueprint
        self.index = 0
        self.clock: Clock = VirtualClock(100.0)
        self.record = world.metrics.learners[0]
        self.checkpoint_dir, self.resume, self.run_dir = folder, resume, folder
        self.desired = DesiredState(world.config, learner_ring=[0])
        self.change_settings(learning={"processes": 1})
        self.stopping = False
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.beats: list[float] = []
        self.ready_after: tuple[int, float] | None = None
        self.on_beat: Callable[[int], None] = lambda count: None

    # ---- the context of the learner

    def beat(self) -> None:
        self.beats.append(self.clock.now())
        self.on_beat(len(self.beats))

    def set_idle_priority(self) -> None:
        pass

    def ready(self) -> None:
        self.ready_after = (self.world.weights.number, self.clock.now())

    def event(self, kind: str, **details: Any) -> None:
        self.events.append((kind, details))

    # ---- for tests

    def change_settings(self, **changes: Any) -> None:
        self.desired = with_changes(self.desired, **changes)

    def play(self, count: int) -> None:
        ledger, continuous = self.world.ledger, bool(self.blueprint.action_shape)
        for tick in range(ledger.newest + 1, ledger.newest + 1 + count):
            frame = np.random.default_rng(tick).normal(size=3).astype(np.float32)
            self.world.frames.publish(tick, frame, 0)
            action = BOX.low + (tick % 5) / 5 * (BOX.high - BOX.low) if continuous else tick % 4
            write_row(ledger, tick, reward=1.0, action=action)

    def learn(
        self, updates: int = 0, until_s: float = 0.0, on_beat: Callable[[int], None] | None = None
    ) -> Run:
        """Let the loop run until a number of updates and a time, or until `on_beat` stops it."""

        def stop(count: int) -> None:
            assert count < 20_000, "the loop does not come to its end"
            self.stopping = self.updates >= updates and self.clock.now() >= until_s

        self.on_beat = stop if on_beat is None else on_beat
        learner.run(self)
        return self

    def begin(self) -> tuple[learner.Learner, SharedUpdate]:
        """A learner that has taken over the shared state, and its update."""
        publish_initial(self.world, self.config, self.resume)
        made = learner.Learner(self)
        made._take_over()
        return made, made._update

    @property
    def updates(self) -> int:
        return int(self.record.updates)

    def events_of(self, kind: str) -> list[dict[str, Any]]:
        return [details for each, details in self.events if each == kind]

    @property
    def newest(self) -> Path:
        """The newest checkpoint."""
        found = checkpoints.newest(self.checkpoint_dir)
        assert found is not None
        return found

    def published(self) -> np.ndarray:
        flat = np.empty(self.blueprint.parameters, np.float32)
        assert self.world.weights.read(flat) is not None
        return flat
