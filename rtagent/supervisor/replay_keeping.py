"""The replay and the disk: filled before the world starts, saved on request and at the end.

It is filled with the saved replay, or else with demonstrations.

Short-lived processes do the work (`storage/process.py`); the supervisor only starts them and takes
in their reports. `poll` never waits for a process to end: it is killed if it does not leave, and
left alone if it cannot even be killed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rtagent.clock import Clock
from rtagent.config import Config
from rtagent.errors import UserError
from rtagent.memory.blueprint import Blueprint
from rtagent.memory.world import WorldHandles
from rtagent.processes.launch import ForkServer
from rtagent.storage.demonstration_loading import Demonstrations, find_demonstrations
from rtagent.storage.process import load_demonstrations, restore_replay, save_replay
from rtagent.storage.replay_snapshot import Manifest, find
from rtagent.storage.signature import replay_signature
from rtagent.supervisor.child import spawned
from rtagent.supervisor.children import PAUSE_S
from rtagent.supervisor.status import Report

ReplaySource = Manifest | Demonstrations
"""The first content of a run's replay."""

POLL_S = 0.1
LEAVE_LIMIT_S = 2.0
"""How long a process may take to leave."""
SILENT_S = 60.0
"""A saver that reports no progress for so long is given up."""


class ReplayKeeping:
    """Saves the replay of one run to a folder, and restores it.

    Attributes:
        outcome: of the newest process: what it did, or {"failed": why}; None before it is known.
    """

    def __init__(
        self, folder: Path, report: Report, clock: Clock, fork_server: ForkServer
    ) -> None:
        self._folder = folder
        self._report = report
        self._clock = clock
        self._fork_server = fork_server
        self._process: Any = None
        self._pipe: Any = None
        self._kind, self._saves = "", False
        self._heard = self._looked = 0.0
        self._leave_by = math.inf
        self._reason = ""
        self.outcome: dict[str, Any] | None = None

    @property
    def busy(self) -> bool:
        """Whether a save is under way."""
        return self._process is not None

    def find(self, config: Config, blueprint: Blueprint) -> ReplaySource | None:
        """The first content of the replay: the saved one, or else demonstrations, if any.

        Raises:
            UserError: it does not belong to this run.
        """
        source = config.learning.demonstrations
        if config.run.checkpoint_replay and config.run.resume:
            saved = find(self._folder, replay_signature(config, blueprint))
            if saved is not None:
                if source is not None:
                    self._report.event(
                        "demonstrations", source="saver", path=str(source),
                        skipped="a saved replay is restored",
                    )
                return saved
        return None if source is None else find_demonstrations(source, config, blueprint)

    def start_save(self, handles: WorldHandles) -> None:
        """Begin to save; `poll` says when it is done. If no process can be started, it is."""
        self._start("replay", save_replay, handles, self._folder)

    def fill(
        self, source: ReplaySource, handles: WorldHandles, keep: int, stopping: Callable[[], bool]
    ) -> None:
        """Fill the replay with at most `keep` ticks, and wait for that: nothing else runs yet.

        Raises:
            UserError: that is not possible.
        """
        demonstrated = isinstance(source, Demonstrations)
        if demonstrated:
            self._start("demonstrations", load_demonstrations, handles, source, keep)
        else:
            self._start("replay", restore_replay, handles, self._folder, keep)
        while not self.poll(POLL_S):
            if stopping():
                self.abort()
                return
            self._fork_server.tend()
        failed = (self.outcome or {}).get("failed")
        if failed is None:
            return
        if demonstrated:
            raise UserError(f"learning.demonstrations: {failed}")
        raise UserError(
            f"the saved replay cannot be restored: {failed}; move {self._folder} away, or start "
            "with --set run.checkpoint_replay=false"
        )

    def poll(self, timeout: float = 0.0) -> bool:
        """Take in reports; whether no process is under way, and `outcome` is that of the last one.

        Args:
            timeout: seconds to wait for a report. Nothing acts that a process which is waited for
                could delay.
        """
        if self._process is not None:
            if timeout:
                self._process.leave_idle()
            self._listen(timeout)
        if self._process is not None:
            self._end_if_due()
        return self._process is None

    def abort(self) -> None:
        """Give up a save; the replay saved before stays."""
        if self._process is None:
            return
        self._end_process("given up")
        self._process.join(LEAVE_LIMIT_S)
        self._process.kill()
        self._process.join(LEAVE_LIMIT_S)
        self._account()

    def _start(
        self, kind: str, body: Any, handles: WorldHandles, place: Any, *further: Any
    ) -> None:
        """Start a process; its outcome becomes an event of this kind, or see `_report_outcome`."""
        self._kind, self._saves, self.outcome = kind, body is save_replay, None
        self._heard = self._looked = self._clock.now()
        self._leave_by, self._reason = math.inf, ""
        try:
            self._process, self._pipe = spawned(
                lambda pipe: self._fork_server.spawn(body, handles, place, pipe, *further)
            )
        except OSError as error:
            self.outcome = {"failed": f"no process: {error.strerror}"}
            self._report_outcome(self.outcome)

    def _listen(self, timeout: float) -> None:
        """Take in the reports of the process; wait for its end if there will be none."""
        if self._pipe.closed:
            if timeout:
                self._process.join(timeout)
            return
        try:
            if self._pipe.poll(timeout):
                for message in self._pipe.receive():
                    self._understand(message)
        except (EOFError, OSError):
            self._pipe.close()
            self._leave_by = min(self._leave_by, self._clock.now() + LEAVE_LIMIT_S)

    def _understand(self, message: Any) -> None:
        self._heard = self._clock.now()
        match message:
            case ["progress", _]:
                pass
            case ["failed", str(reason)]:
                self.outcome = {"failed": reason}
            case [str(kind), dict(details)] if kind != "failed":
                self.outcome = details

    def _end_if_due(self) -> None:
        """Account for a process that has ended; end a process that should have left."""
        now = self._clock.now()
        paused_s, self._looked = now - self._looked, now
        if paused_s >= PAUSE_S:
            # The whole daemon was paused: that is nobody's silence.
            self._heard += paused_s
            self._leave_by += paused_s
        if self._process.exitcode is not None:
            # Its last reports may have come since.
            self._listen(0.0)
            self._account()
        elif now > self._leave_by + LEAVE_LIMIT_S:
            # Not even SIGKILL ends it: it hangs in the kernel, and ends with the fork server.
            self._account()
        elif now > self._leave_by:
            self._process.kill()
        elif self.outcome is not None:
            self._leave_by = min(self._leave_by, now + LEAVE_LIMIT_S)
        elif now - self._heard > SILENT_S:
            self._end_process("no progress for a minute")

    def _end_process(self, reason: str) -> None:
        self._reason = self._reason or reason
        self._process.terminate()
        self._leave_by = min(self._leave_by, self._clock.now() + LEAVE_LIMIT_S)

    def _account(self) -> None:
        """Note the outcome: no process is under way any more."""
        process, self._process = self._process, None
        if self.outcome is None:
            code = process.exitcode
            died = "its process hangs in the kernel" if code is None else (
                process.failure or f"its process ended with code {code}"
            )
            self.outcome = {"failed": self._reason or died}
        process.close()
        self._pipe.close()
        self._report_outcome(self.outcome)

    def _report_outcome(self, outcome: dict[str, Any]) -> None:
        """Report an outcome; a replay that is lost, or restored in part, has a kind of its own.

        If a replay cannot be filled, the run ends with that error, and has no events of its own.
        """
        if "failed" in outcome:
            if self._saves:
                self._report.event("replay_failed", source="saver", reason=outcome["failed"])
        else:
            kind = "replay_damaged" if "problem" in outcome else self._kind
            self._report.event(kind, source="saver", **outcome)
