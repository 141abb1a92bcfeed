"""The supervisor: owns the shared memory, starts and watches every process, carries out changes.

Why it is correct. All of it runs in one thread: `assembly.py` makes the parts of the run, `loop.py`
keeps it going. Other threads and the HTTP service reach it through queues alone.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rtagent.clock import Clock
from rtagent.config import Config
from rtagent.errors import UserError
from rtagent.files.pruning import MIB
from rtagent.memory.world import World
from rtagent.processes.systemd import Systemd
from rtagent.supervisor.assembly import Setup, assemble
from rtagent.supervisor.command_handler import Desired
from rtagent.supervisor.commands import Inbox, Result
from rtagent.supervisor.loop import Loop
from rtagent.supervisor.status import Report
from rtagent.telemetry.event_log import EVENTS_FILE


class Supervisor:
    """Runs one configuration until it is told to stop.

    Args:
        config: the configuration to start with.
        service: body of the HTTP service's process, given the shared memory's handles and its end
            of a pipe. If None, there is no service.
        url: where the service listens.
        preload: further modules for the fork server.
        systemd: is told the state of the run.
        probed: called once nothing can be refused any more.

    Attributes:
        run_dir: where the records of the run are written.
        world: the shared memory, once there is any.
        ended: whether the run is over.
    """

    def __init__(
        self, config: Config, clock: Clock, run_id: str, service: Any = None,
        url: str | None = None, preload: tuple[str, ...] = (), systemd: Systemd | None = None,
        probed: Callable[[], None] = lambda: None,
    ) -> None:
        self._systemd = systemd or Systemd({})
        self.run_dir = config.state_dir / "runs" / run_id
        events = self.run_dir / EVENTS_FILE
        with ExitStack() as opened:
            opened.callback(self._systemd.close)
            self._report = Report(run_id, clock, url, events, config.run.events_mb * MIB)
            opened.callback(self._report.close)
            self._inbox = Inbox()
            opened.callback(self._inbox.close)
            self._opened = opened.pop_all()
        self._setup = Setup(
            Desired(config), clock, self._inbox, self._report, self.run_dir, service,
            preload, probed,
        )
        self.world: World | None = None
        self.ended = False

    @property
    def config(self) -> Config:
        """The configuration with every change so far."""
        return self._setup.desired.config

    @property
    def checkpoint_dir(self) -> Path:
        """Folder of the checkpoints that the learners write."""
        return self._setup.checkpoint_dir

    def submit(self, name: str, arguments: dict[str, Any]) -> Result:
        """Ask for a change; the future resolves when it is in force, or raises `UserError`."""
        return self._inbox.put(name, arguments)

    def request_stop(self) -> None:
        """Ask for an orderly end. Safe in a signal handler."""
        self._inbox.request_stop()

    def give_up(self, error: UserError) -> None:
        """Have the run end at once with an error, and write no more. From any thread."""
        self._inbox.give_up(error)

    def close(self) -> None:
        """Give up what a run needs, where there will be none."""
        self._opened.close()

    def run(self) -> None:
        """Start, supervise until told to stop, and end every process.

        Raises:
            UserError: something cannot be started as configured, or the run was given up; nothing
                is left behind.
        """
        with self._opened as opened:
            try:
                run = assemble(self._setup, opened)
                if run is not None:
                    self.world = run.world
                    Loop(run, self._systemd).run()
            finally:
                self.ended = True
