"""The replay and the disk: filled before the world starts, saved on request and at the end.

It is filled from where it was saved, or else with demonstrations.

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
from rtagent.demonstration_loading import Demonstrations, find_demonstrations
from rtagent.errors import UserError
from rtagent.memory.blueprint import Blueprint
from rtagent.memory.world import WorldHandles
from rtagent.replay_store import Manifest, find
from rtagent.report import Report
from rtagent.saver import load_demonstrations, restore_replay, save_replay

Past = Manifest | Demonstrations
"""What a run may begin with."""

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
        self._kind = ""
        self._heard = 0.0
        self.outcome: dict[str, Any] | None = None

    @property
    def busy(self) -> bool:
        """Whether a save is under way."""
        return self._process is not None

    def find(self, config: Config, blueprint: Blueprint) -> Past | None:
        """What a run begins with: its saved replay, or else demonstrations; None: nothing.

        Raises:
            UserError: it does not belong to this run.
        """
        source = config.learning.demonstrations
        if config.run.checkpoint_replay and config.run.resume:
            saved = find(self._folder, signature(config, blueprint))
            if saved is not None:
                if source is not None:
                    self._report.event(
                        "demonstrations", source="saver", path=str(source),
                        skipped="a saved replay is restored",
                    )
                return saved
        return None if source is None else find_demonstrations(source, config, blueprint)

    def start_save(self, handles: WorldHandles) -> None:
        """Begin to save; `poll` says when it is done."""
        self._start("replay", save_replay, handles, self._folder)

    def begin(self, past: Past, handles: WorldHandles, keep: int) -> None:
        """Fill the replay, and wait for it: nothing else runs yet.

        Args:
            past: what with, from `find`.
            handles: of the shared memory.
            keep: most ticks.

        Raises:
            UserError: that cannot be done.
        """
        demonstrated = isinstance(past, Demonstrations)
        if demonstrated:
            self._start("demonstrations", load_demonstrations, handles, past, keep)
        else:
            self._start("replay", restore_replay, handles, self._folder, keep)
        while not self.poll(0.1):
            pass
        failed = None if self.outcome is None else self.outcome.get("failed")
        if failed is None:
            return
        if demonstrated:
            raise UserError(f"learning.demonstrations: {failed}")
        raise UserError(
            f"the saved replay cannot be restored: {failed}; move {self._folder} away, or start "
            "with --set run.checkpoint_replay=false"
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

    def _start(
        self, kind: str, body: Any, handles: WorldHandles, place: Any, *further: Any
    ) -> None:
        """Start a process; its outcome becomes an event of this kind."""
        self._voice, theirs = launch.pipe()
        self._kind, self._heard, self.outcome = kind, self._clock.now(), None
        self._process = launch.spawn(body, handles, place, theirs, *further, name="saver")
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
        self._report.event(self._kind, source="saver", **self.outcome)
