"""The processes of a run: started, watched, restarted, told to leave.

Why it is correct. All of it runs in the supervisor's thread, which starts every child (the death
signal is armed per thread) and is the only one to touch the children's state. It never waits for
a child: at each step it compares the state of the children with the desired one and does what can
be done at once. So a child that hangs, dies or is stopped in the middle of anything delays nothing
else.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Iterator
from typing import Any

from multiprocess import connection

from rtagent.clock import NANO, MonotonicClock
from rtagent.config import EnvConfig
from rtagent.memory.process_metrics import Doing, ProcessMetrics
from rtagent.processes.kernel_state import is_computing, is_stopped
from rtagent.processes.pipe import MOST_AT_ONCE
from rtagent.supervisor.child import KILL_AFTER_S, Child, Starter, State
from rtagent.supervisor.status import Report

NEEDED_ROLES = frozenset({"environment", "inference", "learner", "service"})
"""A run needs a process of each. Evaluation and recorder only watch; torch needs no converter."""
BOOT_LIMIT_S = 60.0
CONVERTER_LIMIT_S = 600.0
"""How long a converter may be silent: one call of an engine may take seconds of a core, of which a
full machine gives it little."""
SERVICE_LIMIT_S = 10.0
STOPPED_LEARNER_LIMIT_S = 5.0
COMPUTING_LIMIT_S = 600.0
"""How long a process that computes may be silent: where acting leaves little of a core, one update
of a large network may take minutes, and so may loading it."""
LAST_CHECKPOINT_S = 60.0
"""How long a learner that is told to leave may write a checkpoint: disks can be slow."""
UNKILLABLE_AFTER_S = 20.0
"""How long a killed process may take to end: one of idle priority needs a processor for that."""
STOPPED_INFERENCE_LIMIT_S = 1.0
PAUSE_S = 1.0
"""Time between two checks that counts as a pause; it is a tenth of a second otherwise."""
LAST_WORDS = 10_000
"""Messages read of a dead process: more than a pipe can hold."""
BUSY_S = 1.0
"""A step or a reset of the environment that takes longer, and longer than a tick, is shown."""
KILL_LIMIT_S = 2.0
"""How long to wait for the end of killed processes; all end with the fork server."""

Key = tuple[str, int]
Message = tuple[Child, tuple[str, dict[str, Any]]]
"""The sender; `command` or `event`; the content."""


class Children:
    """Every process of a run but the supervisor's own.

    Args:
        metrics: where the processes stamp their heartbeats.
        starter: gives what spawns the process of a role and an index.
        tick_seconds: tau_M.
        seed: of the jitter between restarts.
        env: how long the environment may take for a step and for a reset.

    Attributes:
        last_checkpoint_lost: whether a learner that left died before its last checkpoint was
            written, since this was set to false.
    """

    def __init__(
        self, metrics: ProcessMetrics, starter: Callable[[str, int], Starter], report: Report,
        tick_seconds: float, seed: int, env: EnvConfig,
    ) -> None:
        self._metrics = metrics
        self._env = env
        self._starter = starter
        self._report = report
        self._tick_seconds = tick_seconds
        self._random = random.Random(seed)
        self._children: dict[Key, Child] = {}
        self._looked: float | None = None
        self._awake_since = -math.inf
        self.last_checkpoint_lost = False

    def __iter__(self) -> Iterator[Child]:
        return iter(list(self._children.values()))

    def of(self, role: str) -> list[Child]:
        """The processes of a role, those that have left included."""
        return [child for child in self if child.role == role]

    @property
    def alive(self) -> list[Child]:
        """The children whose process exists."""
        return [child for child in self if child.alive]

    def unkillable(self, now: float) -> list[Child]:
        """The processes that SIGKILL has not ended: they hang in the kernel."""
        return [
            child for child in self.alive
            if child.state is State.STOPPING and now - child.since > UNKILLABLE_AFTER_S
            + (LAST_CHECKPOINT_S if self._is_writing(child) else KILL_AFTER_S)
        ]

    def add(self, role: str, index: int, now: float) -> None:
        """Start a process."""
        child = Child(role, index, self._starter(role, index))
        if before := self._children.get((role, index)):
            child.restarts = before.restarts
        self._children[role, index] = child
        child.start(now, self._random.random())
        self._report_death(child)

    def add_writer(self, now: float) -> bool:
        """Start learner 0, which has been told to leave: it writes a last checkpoint at once.

        Returns:
            Whether the system has permitted it.
        """
        # So that it has the time of a learner that writes, although it must begin first.
        self._metrics.learners[0].writing = 1
        self.add("learner", 0, now)
        return self._children["learner", 0].alive

    def converge(self, wanted: Collection[Key], now: float) -> None:
        """Start processes of `wanted` that are missing, in its order; stop those not in it."""
        for key in wanted:
            child = self._children.get(key)
            if child is None or child.state is State.STOPPED:
                self.add(*key, now)
        for key, child in self._children.items():
            if key not in wanted:
                child.stop(now)

    def listen(self, also: int, timeout: float, now: Callable[[], float]) -> Iterator[Message]:
        """Wait for messages or the end of a child; yields the messages not handled here.

        Args:
            also: a further descriptor that ends the wait.
            timeout: seconds.
            now: gives the time, seconds.
        """
        alive = self.alive
        pipes = {child.pipe: child for child in alive if not child.pipe.closed}
        # A process that was ended before the fork server answered has none.
        sentinels = [at for child in alive if (at := child.process.sentinel) >= 0]
        for item in connection.wait([*pipes, *sentinels, also], timeout):
            if item in pipes:
                yield from self._read_messages(pipes[item], now())

    def detect_pause(self, now: float) -> float:
        """Begin a check of all children; seconds since the last one, or 0 if that is no pause.

        A process that was stopped together with the supervisor (by a terminal, a control group that
        is frozen, a virtual machine) had no time to beat. So whenever the supervisor itself is
        late, every silence counts from now on.
        """
        late_s = 0.0 if self._looked is None else now - self._looked
        self._looked = now
        if late_s < PAUSE_S:
            return 0.0
        self._awake_since = now
        for child in self:
            child.postpone(late_s)
        return late_s

    def check(self, child: Child, now: float, *, stopping: bool) -> Iterator[Message]:
        """Notice death and hang-ups; restart what is due, unless the run is `stopping`.

        Yields the last messages of a dead process.
        """
        if child.alive and child.process.exitcode is not None:
            if not child.pipe.closed:
                yield from self._read_messages(child, now, LAST_WORDS)
            self._note_end(child, now)
            child.reap(now, self._random.random())
            self._report_death(child)
        elif child.alive and child.state is not State.STOPPING:
            if hangs := self._hangs(child, now):
                child.kill(hangs)
            elif child.role == "environment":
                child.busy = self._busy(child, now)
        elif self._is_stopped_in_leaving(child, now):
            child.process.kill()
        if not self._is_writing(child) or now - child.since > LAST_CHECKPOINT_S:
            child.enforce_stop(now)
        if not stopping and child.start_if_due(now, self._random.random()):
            self._report_death(child)

    def _is_stopped_in_leaving(self, child: Child, now: float) -> bool:
        """Whether a signal has stopped an inference process that should leave: it may hold the
        claim lock, for which the others wait."""
        if child.role != "inference" or child.state is not State.STOPPING:
            return False
        heard = self._metrics.inference[child.index].heartbeat_ns / NANO
        silent_s = now - max(heard, self._awake_since)
        return silent_s > STOPPED_INFERENCE_LIMIT_S and is_stopped(child.pid)

    def _is_writing(self, child: Child) -> bool:
        """Whether it is a learner that writes a checkpoint."""
        return child.role == "learner" and bool(self._metrics.learners[child.index].writing)

    def _note_end(self, child: Child, now: float) -> None:
        """Write into the record of a process that has ended what holds from now on."""
        self._metrics.record(child.role, child.index).ready = 0
        if child.role == "learner":
            # What it has applied last must not be spread over the time until it runs again.
            self._metrics.learners[child.index].add_mark(int(now * NANO))
            self._note_lost_checkpoint(child)

    def _note_lost_checkpoint(self, child: Child) -> None:
        """Note that a learner that has ended writes no more; report if it was to be the last one.
        """
        if not self._is_writing(child):
            return
        # It has died, or it would have said so itself.
        self._metrics.learners[child.index].writing = 0
        if child.state is State.STOPPING:
            self.last_checkpoint_lost = True
            why = (child.reported_error or "it was killed").splitlines()[-1]
            self._report.event(
                "checkpoint_failed", source=child.name,
                reason="the learner died before its last checkpoint was written, for which it has "
                       f"{LAST_CHECKPOINT_S:.0f} s: {why}",
            )

    def _report_death(self, child: Child) -> None:
        """Report if a process has died, or could not be started."""
        if child.state in (State.BACKOFF, State.FAILED):
            wait_s = child.start_at - child.since
            again = {} if child.boot_error else {"again_in_s": round(wait_s, 1)}
            kind = "failed" if child.state is State.FAILED else "died"
            self._report.event(kind, source=child.name, error=child.last_line, **again)

    def fresh(self, now: float) -> bool:
        """Whether every role that a run needs has a process that beats.

        A process that hangs beside others of its role is replaced. Where a role has none left, only
        a new start of the daemon may help.
        """
        beats: dict[str, bool] = {}
        for child in self:
            if child.role in NEEDED_ROLES and child.state not in (State.STOPPING, State.STOPPED):
                well = child.alive and not self._hangs(child, now)
                beats[child.role] = beats.get(child.role, False) or well
        return all(beats.values())

    def stop(self, now: float) -> None:
        """Expect all processes to leave; nothing acts any more that a learner could delay."""
        for child in self:
            child.stop(now)
            if child.alive:
                child.process.leave_idle()

    def kill_all(self) -> None:
        """End the processes that are left."""
        left = [child.process for child in self.alive]
        for child in self.alive:
            child.end()
        clock = MonotonicClock()
        deadline = clock.now() + KILL_LIMIT_S
        for process in left:
            process.join(max(0.0, deadline - clock.now()))
            # The program around this run may go on, and start others.
            process.close()

    def reset_failed(self, role: str, now: float) -> None:
        """Start the failed processes of a role afresh, since their settings have changed."""
        for child in self.of(role):
            if child.state is State.FAILED:
                child.stop(now)

    def _read_messages(
        self, child: Child, now: float, most: int = MOST_AT_ONCE
    ) -> Iterator[Message]:
        """Take in the messages of a child."""
        try:
            for message in child.pipe.receive(most):
                yield from self._understand(child, message, now)
        except (EOFError, OSError):
            child.pipe.close()

    def _understand(self, child: Child, message: Any, now: float) -> Iterator[Message]:
        """Take in one message, which may be anything: the memory of the child may be corrupt."""
        match message:
            case ["ready", _]:
                if child.mark_ready(now) and child.restarted:
                    self._report.event("restarted", source=child.name, restarts=child.restarts)
            case ["failed", {"error": str(error), "boot": bool(boot)}]:
                child.note_error(error, boot=boot)
            case ["event", {"kind": str()} as said]:
                yield child, ("event", said)
            case {"id": int(), "name": str(), "arguments": dict(), "by": str()}:
                yield child, ("command", message)
            case _ if not child.sent_nonsense:
                child.sent_nonsense = True
                self._report.event("not_understood", source=child.name, message=message)

    def _silent_for(self, child: Child, now: float) -> float:
        """Seconds since the process of this child last beat, or was started."""
        heard_ns = self._metrics.record(child.role, child.index).heartbeat_ns
        if child.role == "environment":
            heard_ns = max(heard_ns, self._metrics.environment.doing[1])
        return now - max(heard_ns / NANO, child.since, self._awake_since)

    def _busy(self, child: Child, now: float) -> str | None:
        """What the environment takes long for; None if it takes long for nothing."""
        doing, since_ns = self._metrics.environment.doing
        long = now - max(since_ns / NANO, child.since) > max(BUSY_S, self._tick_seconds)
        return doing.name.lower() if doing is not Doing.WAITING and long else None

    def _hangs(self, child: Child, now: float) -> str | None:
        """Why a process counts as hung, if it does."""
        limit = self._silence_limit(child, now)
        if self._silent_for(child, now) <= limit:
            return None
        if child.role == "environment":
            doing, _ = self._metrics.environment.doing
            if doing is Doing.STEPPING and limit == self._env.step_limit_s:
                return f"a step has not come back for {limit:g} s (env.step_limit_s)"
            if doing is Doing.RESETTING and limit == self._env.reset_limit_s:
                return f"a reset has not come back for {limit:g} s (env.reset_limit_s)"
        return f"no heartbeat for {limit:.0f} s"

    def _silence_limit(self, child: Child, now: float) -> float:
        """Seconds without a heartbeat after which a process counts as hung."""
        if child.role == "converter":
            return CONVERTER_LIMIT_S
        if child.role == "learner":
            return self._learner_limit(child, now)
        if child.state is State.STARTING and child.role in ("inference", "evaluation"):
            return self._computing_limit(child, now)
        if child.state is State.STARTING or child.role == "recorder":
            return BOOT_LIMIT_S
        if child.role == "evaluation":
            # It steps and resets such a world, too.
            return max(BOOT_LIMIT_S, self._env.step_limit_s, self._env.reset_limit_s)
        if child.role == "service":
            # On a busy machine it may get no processor for seconds, and no process that acts waits
            # for it.
            return SERVICE_LIMIT_S
        if child.role == "inference":
            # A slow policy is silent for long; a process that a signal has stopped stays silent.
            overdue = self._silent_for(child, now) > STOPPED_INFERENCE_LIMIT_S
            if overdue and is_stopped(child.pid):
                return STOPPED_INFERENCE_LIMIT_S
            return 2.0 + 8.0 * self._metrics.inference[child.index].estimate_s
        return self._environment_limit(child, now)

    def _learner_limit(self, child: Child, now: float) -> float:
        """A learner that computes, or waits for a processor, has time: at idle priority it may get
        none for long. A stopped one is given up early, for it may hold the apply lock.
        """
        if is_stopped(child.pid):
            return STOPPED_LEARNER_LIMIT_S
        return self._computing_limit(child, now)

    def _computing_limit(self, child: Child, now: float) -> float:
        """A process that computes, or waits for a processor or its disk, has time."""
        overdue = self._silent_for(child, now) > BOOT_LIMIT_S
        return COMPUTING_LIMIT_S if overdue and is_computing(child.pid) else BOOT_LIMIT_S

    def _environment_limit(self, child: Child, now: float) -> float:
        """A step may take long; a process that a signal has stopped stays silent."""
        limit = 2.0 + 2.0 * self._tick_seconds
        doing, _ = self._metrics.environment.doing
        overdue = self._silent_for(child, now) > limit
        if doing is Doing.WAITING or (overdue and is_stopped(child.pid)):
            return limit
        return self._env.reset_limit_s if doing is Doing.RESETTING else self._env.step_limit_s
