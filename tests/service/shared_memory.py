"""A daemon whose shared memory a test writes."""

from __future__ import annotations

import time
from typing import Any

from rtagent.config import Config
from rtagent.memory.blueprint import Blueprint
from rtagent.memory.control import DesiredState
from rtagent.memory.world import World, WorldMemory
from rtagent.processes.pipe import open_pipe
from rtagent.staggering.arbiter import Source
from service.daemon.backend import Backend
from tests.desired import with_changes
from tests.rows import write_row


def blueprint(shape: tuple[int, ...], dtype: str, *, screen: bool) -> Blueprint:
    return Blueprint(
        rate_hz=50.0, frame_shape=shape, frame_dtype=dtype, frame_stack=1, observation_space=None,
        action_space=None, action_shape=(), action_dtype="int32", action_meanings=(),
        network="mlp 1", tensors=(), screen=screen,
    )


class Daemon:
    """Shared memory written by the test, as the supervisor and the environment would."""

    def __init__(self, config: Config, shapes: Blueprint) -> None:
        self.memory = WorldMemory(config, shapes)
        self.world = World(self.memory.handles)
        self.order()
        self.pipe, theirs = open_pipe()
        self.backend = Backend(World(self.memory.handles), theirs)

    def close(self) -> None:
        self.pipe.close()
        self.memory.close()

    def order(
        self, processes: int = 2, algorithm: str = "adaptive", injected_ms: float = 0.0
    ) -> None:
        self.world.control.write(
            with_changes(
                DesiredState(self.world.config), processes=processes, rows=processes,
                inference={
                    "processes": processes, "algorithm": algorithm,
                    "injected_latency_ms": injected_ms,
                },
            )
        )

    def tick(self, frame: Any) -> None:
        self.world.frames.publish(0, frame, 0)
        write_row(
            self.world.ledger, 0, time_ns=time.monotonic_ns(), worker=-1, source=Source.DEFAULT
        )
