"""A daemon whose shared memory a test writes."""

from __future__ import annotations

import time
from typing import Any

from rtagent.config import Config
from rtagent.memory.control import DesiredState
from rtagent.memory.world import World, WorldMemory
from rtagent.processes.pipe import open_pipe
from rtagent.staggering.arbiter import Source
from service.daemon.backend import Backend
from tests.conftest import make_blueprint
from tests.rows import write_row


class Daemon:
    """Shared memory written by the test, as the supervisor and the environment would."""

    def __init__(self, config: Config, **shapes: Any) -> None:
        self.memory = WorldMemory(config, make_blueprint(**shapes))
        self.world = World(self.memory.handles)
        self.world.control.write(DesiredState(config, processes=2, rows=2))
        self.pipe, theirs = open_pipe()
        self.backend = Backend(World(self.memory.handles), theirs)

    def close(self) -> None:
        self.pipe.close()
        self.memory.close()

    def tick(self, frame: Any) -> None:
        self.world.frames.publish(0, frame, 0)
        write_row(
            self.world.ledger, 0, time_ns=time.monotonic_ns(), worker=-1, source=Source.DEFAULT
        )
