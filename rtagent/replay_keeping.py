"""The replay on disk: restored before the world starts, saved on request and at the end.

Short-lived processes of their own do the work (`saver.py`), at idle priority; the supervisor only
starts them and hears how they fare.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rtagent import launch
from rtagent.checkpoint import signature
from rtagent.clock import Clock
from rtagent.config import Config
from rtagent.errors import UserError
from rtagent.memory.blueprint import Blueprint
from rtagent.memory.world import WorldHandles
from rtagent.replay_store import Manifest, find
from rtagent.report import Report
from rtagent.saver import restore_replay, save_replay

SILENT_S = 60.0
"""A saver that reports no progress for so long is given up."""


class ReplayKeeping:
    """Saving and restoring the replay of one run.

    Args:
        folder: where it is kept.
        report: told what happens.
        clock: time.
    """

    def __init__(self, folder: Path, report: Report, clock: Clock) -> None:
        self._folder = folder
        self._report = report
        self._clock = clock
        self._process: Any = None
        self._voice: Any = None
        self._heard = 0.0
        self.outcome: dict[str, Any] | None = None

    @property
    def busy(self) -> bool:
        """Whether a save is under way."""
        return self._process is not None

    def find(self, config: Config, blueprint: Blueprint) -> Manifest | None:
        """What a run may start with; None if there is nothing, or it is not wanted."""
        if not (config.run.checkpoint_replay and config.run.resume):
            return None
        return find(self._folder, signature(config, blueprint))

    def start_save(self, handles: WorldHandles) -> None:
        """Begin to save; `poll` says when it is done."""
        self._start(save_replay, handles)

    def restore(self, handles: WorldHandles, keep: int) -> None:
        """Restore, and wait for it: nothing else runs yet.

        Args:
            handles: of the shared memory.
            keep: most ticks.

        Raises:
            UserError: it cannot be restored.
        """
        self._start(restore_replay, handles, keep)
        while not self.poll(0.1):
            pass
        if self.outcome is not None and "failed" in self.outcome:
            raise UserError(
                f"the saved replay cannot be restored: {self.outcome['failed']}; move "
                f"{self._folder} away, or start with --set run.checkpoint_replay=false"
            )

    def poll(self, timeout: float = 0.0) -> bool:
        """Look for news.

        Args:
            timeout: seconds to wait for some.

        Returns:
            Whether nothing is under way (any more); `outcome` then says how it went.
        """
        if self._process is None:
            return True
        try:
            while self._voice.poll(timeout):
                kind, said = self._voice.recv()
                self._heard, timeout = self._clock.now(), 0.0
                if kind != "progress":
                    self.outcome = {kind: said} if kind == "failed" else said
        except (EOFError, OSError):
            self._end(None)
        else:
            if self.outcome is not None:
                self._end(None)
            elif self._clock.now() - self._heard > SILENT_S:
                self._end("no progress for a minute")
        return self._process is None

    def abort(self) -> None:
        """Give up a save; the replay saved before stays."""
        if self._process is not None:
            self._end("given up")

    def _start(self, body: Any, handles: WorldHandles, *further: Any) -> None:
        self._voice, theirs = launch.pipe()
        self._heard, self.outcome = self._clock.now(), None
        self._process = launch.spawn(body, handles, self._folder, theirs, *further, name="saver")
        theirs.close()

    def _end(self, reason: str | None) -> None:
        if reason is not None:
            self._process.terminate()
            self._process.join(2.0)
            self._process.kill()
        self._process.join()
        self._voice.close()
        code, self._process = self._process.exitcode, None
        if self.outcome is None:
            self.outcome = {"failed": reason or f"its process ended with code {code}"}
        self._report.event("replay", source="saver", **self.outcome)
