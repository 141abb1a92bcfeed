"""The processes of a run: started, watched, started again, sent away.

Why it is correct. All of it runs in the supervisor's thread, which starts every child (the death
signal is armed per thread) and is the only one to touch the children's state. It never waits for
a child: it looks at what is and moves towards what should be, step by step, so that a child that
hangs, dies or is stopped in the middle of anything delays nothing else.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from multiprocess import connection

from rtagent.child import Child, Starter, State
from rtagent.memory.actions import NANO
from rtagent.memory.board import Board
from rtagent.notify import Heartbeat, every_role_fresh
from rtagent.report import Report

BOOT_LIMIT_S = 60.0
SERVICE_LIMIT_S = 10.0
STOPPED_LEARNER_LIMIT_S = 5.0
STOPPED_INFERENCE_LIMIT_S = 1.0

Key = tuple[str, int]
Message = tuple[Child, tuple[str, dict[str, Any]]]
"""Who said it; `command` or `event`; what."""


class Crew:
    """Every process of a run but the supervisor's own.

    Args:
        board: where the processes stamp their heartbeats.
        starter: spawns the process of a role and an index, given its end of a pipe.
        report: told what happens.
        tick_seconds: tau_M.
        seed: of the jitter between restarts.
    """

    def __init__(
        self,
        board: Board,
        starter: Callable[[str, int], Starter],
        report: Report,
        tick_seconds: float,
        seed: int,
    ) -> None:
        self._board = board
        self._starter = starter
        self._report = report
        self._tick_seconds = tick_seconds
        self._random = random.Random(seed)
        self._children: dict[Key, Child] = {}

    def __iter__(self) -> Iterator[Child]:
        return iter(list(self._children.values()))

    def of(self, role: str) -> list[Child]:
        """The processes of a role, those that have left included."""
        return [child for child in self if child.role == role]

    @property
    def alive(self) -> bool:
        """Whether any process exists."""
        return any(child.alive for child in self)

    def add(self, role: str, index: int, now: float) -> None:
        """Start a process."""
        child = Child(role, index, self._starter(role, index))
        self._children[role, index] = child
        child.start(now)

    def converge(self, wanted: Collection[Key], now: float) -> None:
        """Start what is missing and send away what is too many.

        Args:
            wanted: the processes that should exist, in the order of their start.
            now: seconds.
        """
        for key in wanted:
            child = self._children.get(key)
            if child is None or child.state is State.STOPPED:
                self.add(*key, now)
        for key, child in self._children.items():
            if key not in wanted:
                child.stop(now)

    def listen(self, also: int, timeout: float, now: Callable[[], float]) -> Iterator[Message]:
        """Wait for news from anybody.

        Args:
            also: a further descriptor that ends the wait.
            timeout: seconds.
            now: the clock.

        Yields:
            (child, message) for what the crew does not handle itself.
        """
        alive = [child for child in self if child.alive]
        voices = {child.voice: child for child in alive if not child.voice.closed}
        sentinels = [child.process.sentinel for child in alive]
        for item in connection.wait([*voices, *sentinels, also], timeout):
            if item in voices:
                yield from self._hear(voices[item], now())

    def look_after(self, child: Child, now: float, *, stopping: bool) -> Iterator[Message]:
        """Notice death and hang-ups; start again what is due.

        Args:
            child: one of the crew.
            now: seconds.
            stopping: nothing is started any more.

        Yields:
            (child, message): its last words.
        """
        if child.alive and child.process.exitcode is not None:
            if not child.voice.closed:
                yield from self._hear(child, now)
            child.reap(now, self._random.random())
            if child.state is not State.STOPPED:
                error = (child.last_error or "").splitlines()[-1:]
                self._report.event(child.state, source=child.name, error="".join(error))
        elif child.alive and child.state is not State.STOPPING:
            limit = self._silence_limit(child, now)
            if self._silent_for(child, now) > limit:
                child.kill(f"no heartbeat for {limit:.0f} s")
        child.enforce_stop(now)
        if not stopping:
            child.start_if_due(now)

    def fresh(self, now: float) -> bool:
        """Whether every role that a run needs has a process that beats."""
        return every_role_fresh(
            Heartbeat(
                child.role,
                self._silent_for(child, now) if child.alive else math.inf,
                self._silence_limit(child, now),
            )
            for child in self
            if child.state not in (State.STOPPING, State.STOPPED)
        )

    def stop(self, now: float) -> None:
        """Expect everybody to leave."""
        for child in self:
            child.stop(now)

    def kill_all(self) -> None:
        """End whoever is left."""
        for child in self:
            if child.alive:
                child.process.kill()
                child.process.join()

    def forgive(self, role: str) -> None:
        """Let the failed processes of a role try again: their settings have changed."""
        for child in self.of(role):
            if child.state is State.FAILED:
                child.state = State.STOPPED

    def _hear(self, child: Child, now: float) -> Iterator[Message]:
        """Read everything that a child has said."""
        try:
            while child.voice.poll(0):
                message = child.voice.recv()
                if isinstance(message, dict):
                    yield child, ("command", message)
                elif message[0] == "ready":
                    child.mark_ready(now)
                    if child.restarts:
                        self._report.event(
                            "restarted", source=child.name, restarts=child.restarts
                        )
                elif message[0] == "failed":
                    child.note_error(message[1]["error"], boot=message[1]["boot"])
                elif message[0] == "event":
                    yield child, message
        except (EOFError, OSError):
            child.voice.close()

    def _record(self, child: Child) -> Any:
        return self._board.record(child.role, child.index)

    def _silent_for(self, child: Child, now: float) -> float:
        """Seconds since the process of this child last beat, or was started."""
        heard = float(self._record(child)["heartbeat_ns"][0]) / NANO
        return now - max(heard, child.since)

    def _silence_limit(self, child: Child, now: float) -> float:
        """Seconds without a heartbeat after which a process counts as hung."""
        if child.state is State.STARTING or child.role in ("evaluation", "recorder"):
            return BOOT_LIMIT_S
        if child.role == "service":
            # On a machine full of others it may get no processor for seconds, and nothing that acts
            # waits for it.
            return SERVICE_LIMIT_S
        if child.role == "learner":
            # At idle priority it may get no processor for long: only one that was stopped, and may
            # hold the apply lock, is given up early.
            return STOPPED_LEARNER_LIMIT_S if is_stopped(child.pid) else BOOT_LIMIT_S
        if child.role == "inference":
            # A slow policy is silent for long; one that a signal has stopped will not come back.
            overdue = self._silent_for(child, now) > STOPPED_INFERENCE_LIMIT_S
            if overdue and is_stopped(child.pid):
                return STOPPED_INFERENCE_LIMIT_S
            return 2.0 + 8.0 * float(self._record(child)["estimate_s"][0])
        return 2.0 + 2.0 * self._tick_seconds


def is_stopped(pid: int | None) -> bool:
    """Whether a process has been stopped by a signal."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
    except OSError:
        return False
    return after_name.split()[0] in ("T", "t")
