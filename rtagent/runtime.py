"""The daemon inside a Python program: the same supervisor, without the HTTP service."""

from __future__ import annotations

import atexit
import math
import secrets
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

from rtagent.clock import MonotonicClock
from rtagent.config import Config
from rtagent.errors import UserError
from rtagent.live_config import Values, as_changes, with_values
from rtagent.supervisor.children import LAST_CHECKPOINT_S
from rtagent.supervisor.state_dir import StateDir
from rtagent.supervisor.supervisor import Supervisor
from rtagent.telemetry.stats import StatsReader
from rtagent.telemetry.verdicts import failure_in, health

POLL_S = 0.02
STOP_LIMIT_S = 15.0 + 2 * LAST_CHECKPOINT_S
"""A learner may write for so long, and then another in its place (`Loop._keep_learned`)."""
CHECKPOINT_LIMIT_S = 600.0


class Runtime:
    """Acts and learns while the `with` block runs; the end of the program ends it, too.

    The supervisor lives in a thread of its own, which starts every process: they end with it. Every
    method may be called from any thread.

    Args:
        config: what to run.

    Attributes:
        run_id: name of the run; new at every start.

    Raises:
        UserError: on entry, if the state directory is not free or cannot be used; from every
            method, if the run has not begun, has ended, or could not be started as configured; on
            exit, if it could not and no method has said so.
        TimeoutError: on exit, if the run does not end.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._clock = MonotonicClock()
        self._error: BaseException | None = None
        self._told = False
        self._reader: StatsReader | None = None
        # A reader keeps what it has seen, so only one thread at a time may use it.
        self._reading = threading.Lock()
        self._begun: tuple[Supervisor, threading.Thread] | None = None

    def __enter__(self) -> Runtime:
        if self._begun is not None:
            raise UserError("a Runtime runs once: make another one")
        # The program may go to another directory.
        where = {"run": {"state_dir": self._config.state_dir.absolute()}}
        self._config = with_values(self._config, where)
        state_dir = StateDir(self._config.state_dir)
        self.run_id = secrets.token_hex(4)
        supervisor: Supervisor | None = None
        try:
            supervisor = Supervisor(self._config, self._clock, self.run_id)
            thread = threading.Thread(
                target=self._supervise, args=(supervisor, state_dir), name="rtagent-supervisor",
                daemon=True,
            )
            state_dir.watch(supervisor.give_up)
            thread.start()
        except (OSError, RuntimeError):
            # No descriptor or no thread is free, which a program may mend and try again.
            if supervisor is not None:
                supervisor.close()
            state_dir.release()
            raise
        self._begun = supervisor, thread
        # Python would wait for ever for another kind of thread, of a block that is never left.
        atexit.register(self._stop)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        thread, limit_s = self._run()[1], self._stop()
        atexit.unregister(self._stop)
        if thread.is_alive() and error is None:
            raise TimeoutError(
                f"the run has not ended after {limit_s:.0f} s; it still holds "
                f"{self._config.state_dir}"
            )
        if error is None and not self._told:
            self._raise_error()

    def _stop(self) -> float:
        """End the run, or wait in vain for so many seconds."""
        supervisor, thread = self._run()
        supervisor.request_stop()
        limit_s = CHECKPOINT_LIMIT_S if self._config.run.checkpoint_replay else STOP_LIMIT_S
        thread.join(limit_s)
        return limit_s

    def _supervise(self, supervisor: Supervisor, state_dir: StateDir) -> None:
        try:
            supervisor.run()
        except BaseException as error:
            self._error = error
        finally:
            # Not before, because until here the run writes into it.
            state_dir.release()

    def wait_ready(self, timeout: float = 30.0) -> None:
        """Wait until the world ticks and every inference process acts.

        Args:
            timeout: seconds.

        Raises:
            UserError: it could not be started as configured.
            TimeoutError: it takes longer.
        """
        deadline = self._clock.now() + _number("wait_ready", "timeout", timeout)
        while not self._acting():
            if self._clock.now() > deadline:
                raise TimeoutError(f"not ready after {timeout:g} s: {self._what_lacks()}")
            self._clock.sleep_until(self._clock.now() + POLL_S)

    def _what_lacks(self) -> str:
        told = health(self.status())
        if told.level == "good":
            return "every process runs, but not every inference process has acted"
        return f"{told.headline}: {told.detail}"

    def wait(self, *, updates: int | None = None, seconds: float | None = None) -> dict[str, Any]:
        """Wait until so many updates have been applied or so many seconds have passed.

        Args:
            updates: applied in this run, by all learners. If None, any number.
            seconds: from now on. If None, without limit.

        Returns:
            The figures at the end, as `stats`.

        Raises:
            UserError: neither is given, or the run has ended; or, if updates are waited for, a
                process that they need keeps failing.
        """
        if updates is None and seconds is None:
            raise UserError("wait: say how many updates, or how many seconds")
        limit_s = math.inf if seconds is None else _number("wait", "seconds", seconds)
        deadline = self._clock.now() + limit_s
        wanted = math.inf if updates is None else _number("wait", "updates", updates)
        while self._clock.now() < deadline and self._applied() < wanted:
            if updates is not None and (failure := failure_in(self.status())) is not None:
                raise UserError(failure)
            self._clock.sleep_until(min(deadline, self._clock.now() + POLL_S))
        return self.stats()

    def _applied(self) -> int:
        world = self._running().world
        return 0 if world is None else sum(each.applied for each in world.metrics.learners)

    def _acting(self) -> bool:
        world = self._running().world
        if world is None or world.ledger.newest < world.first_tick:
            return False
        with self._reading:
            processes = world.control.desired.processes
        return all(each.inferences for each in world.metrics.inference[:processes])

    def set(self, changes: Values, timeout: float = 60.0) -> dict[str, dict[str, Any]]:
        """Change settings, all or none of them; returns when they are in force.

        Args:
            changes: by section and name, as in `PATCH /v1/config`.
            timeout: seconds.

        Returns:
            The live settings of these sections.

        Raises:
            NotInForce: accepted, but a process fails, or it is not in force after 30 s.
            TimeoutError: no answer in time; the change may still be made.
            UserError: refused; nothing has changed.
        """
        return self._answer("set", as_changes(changes), timeout)

    def set_inference(self, *, timeout: float = 60.0, **changes: Any) -> dict[str, Any]:
        """Change settings of the section `inference`, see `set`."""
        return self.set({"inference": changes}, timeout)["inference"]

    def set_learning(self, *, timeout: float = 60.0, **changes: Any) -> dict[str, Any]:
        """Change settings of the section `learning`, see `set`."""
        return self.set({"learning": changes}, timeout)["learning"]

    def set_deadlines(self, *, timeout: float = 60.0, **changes: Any) -> dict[str, Any]:
        """Change settings of the section `r3`, see `set`."""
        return self.set({"r3": changes}, timeout)["r3"]

    def checkpoint(
        self, replay: bool = False, timeout: float = CHECKPOINT_LIMIT_S
    ) -> dict[str, Any]:
        """Write a checkpoint now; returns when it is written: path, file, updates, replay, seconds.

        Args:
            replay: save the replay too.
            timeout: seconds.

        Raises:
            TimeoutError: it takes longer; it may still be written.
            UserError: it cannot be written.
        """
        written = self._answer("checkpoint", {"replay": replay}, timeout)
        return {"path": self._running().checkpoint_dir / written["file"], **written}

    def _answer(self, command: str, arguments: dict[str, Any], timeout: float) -> dict[str, Any]:
        limit_s = _number(command, "timeout", timeout)
        try:
            answer = self._running().submit(command, arguments)
            return answer.result(min(limit_s, threading.TIMEOUT_MAX))
        except TimeoutError:
            raise TimeoutError(
                f"{command}: no answer after {timeout:g} s; it may still be carried out"
            ) from None

    def stats(self) -> dict[str, Any]:
        """Every figure, as `GET /v1/stats`.

        Raises:
            UserError: the run has ended, or is not ready yet.
        """
        world = self._running().world
        if world is None:
            raise UserError("no figures yet: call wait_ready first")
        with self._reading:
            if self._reader is None:
                self._reader = StatsReader(world)
            return self._reader.collect()

    def status(self) -> dict[str, Any]:
        """State of the run and its processes, as `GET /v1/status`; {} before the start."""
        world = self._running().world
        if world is None:
            return {}
        with self._reading:
            return dict(world.status.read())

    @property
    def run_dir(self) -> Path:
        """Folder of the records of this run; known once the run has begun."""
        return self._run()[0].run_dir

    @property
    def world(self) -> Any:
        """The shared memory, for measurements."""
        return self._run()[0].world

    def _run(self) -> tuple[Supervisor, threading.Thread]:
        if self._begun is None:
            raise UserError("the run has not begun: write `with Runtime(config) as runtime:`")
        return self._begun

    def _running(self) -> Supervisor:
        """The supervisor of a run that has begun and not ended.

        Raises:
            UserError: the run has not begun, has ended, or could not be started as configured.
        """
        supervisor, thread = self._run()
        if supervisor.ended:
            # Its thread may still set the error.
            thread.join(STOP_LIMIT_S)
        self._raise_error()
        if supervisor.ended:
            raise UserError("the run has ended: ask for figures inside its `with` block")
        return supervisor

    def _raise_error(self) -> None:
        if self._error is not None:
            self._told = True
            raise self._error


def _number(method: str, name: str, value: float) -> float:
    """The value of an argument.

    Raises:
        UserError: it is nan, with which a limit would never be reached, or would be at once.
    """
    if math.isnan(value):
        raise UserError(f"{method}: {name} = nan: must be a number")
    return value
