"""The daemon inside a Python program: the same supervisor, without the HTTP service."""

from __future__ import annotations

import secrets
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

from rtagent.clock import MonotonicClock
from rtagent.config import Config
from rtagent.errors import UserError
from rtagent.state_dir import StateDir
from rtagent.stats import StatsReader
from rtagent.supervisor import Supervisor

POLL_S = 0.02
STOP_LIMIT_S = 15.0
CHECKPOINT_LIMIT_S = 600.0


class Runtime:
    """Acts and learns while the `with` block runs.

    The supervisor lives in a thread of its own, which starts every process: they end with it.

    Args:
        config: what to run.

    Attributes:
        run_id: name of the run; new at every start.

    Raises:
        UserError: on entry, if the state directory is not free or cannot be used.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._error: BaseException | None = None
        self._reader: StatsReader | None = None

    def __enter__(self) -> Runtime:
        self._clock = MonotonicClock()
        self._state_dir = StateDir(self._config.state_dir)
        self.run_id = secrets.token_hex(4)
        self._supervisor = Supervisor(self._config, self._clock, self.run_id)
        self._thread = threading.Thread(target=self._supervise, name="rtagent-supervisor")
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._supervisor.request_stop()
        saves = self._config.run.checkpoint_replay
        self._thread.join(CHECKPOINT_LIMIT_S if saves else STOP_LIMIT_S)
        self._state_dir.release()

    def _supervise(self) -> None:
        try:
            self._supervisor.run()
        except BaseException as error:
            self._error = error

    def wait_ready(self, timeout: float = 30.0) -> None:
        """Wait until the world ticks and every inference process acts.

        Args:
            timeout: seconds.

        Raises:
            UserError: it could not be started as configured.
            TimeoutError: it takes longer.
        """
        deadline = self._clock.now() + timeout
        while not self._acting():
            self._check()
            if self._clock.now() > deadline:
                raise TimeoutError(f"not ready after {timeout:.0f} s: {self.status()}")
            self._clock.sleep_until(self._clock.now() + POLL_S)

    def _acting(self) -> bool:
        world = self._supervisor.world
        if world is None or world.ledger.newest < world.first_tick:
            return False
        acting = world.board.inference["deposits"][: world.control.orders.processes] > 0
        return bool(acting.all())

    def set_inference(self, timeout: float = 60.0, **changes: Any) -> dict[str, Any]:
        """Change processes, algorithm or action_deadline_ms; returns when in force.

        Args:
            timeout: seconds.
            changes: as in `PATCH /v1/inference`.

        Raises:
            UserError: refused; nothing has changed.
        """
        return self._ask("set_inference", changes, timeout)

    def set_learning(self, timeout: float = 60.0, **changes: Any) -> dict[str, Any]:
        """Change processes, paused, batch_size or order; returns when in force.

        Args:
            timeout: seconds.
            changes: as in `PATCH /v1/learning`.

        Raises:
            UserError: refused; nothing has changed.
        """
        return self._ask("set_learning", changes, timeout)

    def set_deadlines(self, timeout: float = 60.0, **changes: Any) -> dict[str, Any]:
        """Change mode, deadline_s, data_budget or memory_budget_mb; returns when in force.

        Args:
            timeout: seconds.
            changes: as in `PATCH /v1/deadlines`.

        Raises:
            UserError: refused; nothing has changed.
        """
        return self._ask("set_deadlines", changes, timeout)

    def checkpoint(
        self, replay: bool = False, timeout: float = CHECKPOINT_LIMIT_S
    ) -> dict[str, Any]:
        """Write a checkpoint now; returns when it is written: file, updates, replay, seconds.

        Args:
            replay: save the replay too.
            timeout: seconds.

        Raises:
            UserError: it cannot be written.
        """
        return self._ask("checkpoint", {"replay": replay}, timeout)

    def _ask(self, command: str, arguments: dict[str, Any], timeout: float) -> dict[str, Any]:
        self._check()
        return self._supervisor.submit(command, arguments).result(timeout)

    def stats(self) -> dict[str, Any]:
        """Every figure, as `GET /v1/stats`.

        Raises:
            UserError: it could not be started as configured, or is not ready yet.
        """
        self._check()
        if self._supervisor.world is None:
            raise UserError("no figures yet: call wait_ready first")
        if self._reader is None:
            self._reader = StatsReader(self._supervisor.world)
        return self._reader.collect()

    def status(self) -> dict[str, Any]:
        """State of the run and its processes, as `GET /v1/status`; {} before the start."""
        self._check()
        world = self._supervisor.world
        return {} if world is None else dict(world.status.read())

    @property
    def run_dir(self) -> Path:
        """Where the records of this run are written."""
        return self._supervisor.run_dir

    @property
    def world(self) -> Any:
        """The shared memory, for measurements."""
        return self._supervisor.world

    def _check(self) -> None:
        if self._error is not None:
            raise self._error
