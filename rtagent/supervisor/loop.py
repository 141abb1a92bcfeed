"""The supervisor's loop: does each duty once in every step.

Why it is correct. All of it runs in one thread. It never waits for a child (`children.py`), and
never for a lock either, whose holder may be a stopped process that only the supervisor can kill. A
duty that fails delays none of the others (`duties.py`), and is tried again at the next step.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from rtagent.clock import NANO
from rtagent.errors import UserError
from rtagent.processes.systemd import Systemd
from rtagent.supervisor.assembly import Run
from rtagent.supervisor.child import Child, State
from rtagent.supervisor.duties import Duties
from rtagent.supervisor.membership import learner_ring, update_members
from rtagent.supervisor.staffing import wanted
from rtagent.supervisor.status import run_state
from rtagent.telemetry.event_log import KEYS

STEP_S = 0.1
GO_AFTER_S = 10.0
MOST_ROWS = 10_000
"""Rows of the ledger in which to look what happened during a pause."""
SLIPS_REPORTED_EVERY_S = 10.0
"""Least time between two events of slips: a world whose step is too slow slips several times in a
second."""


class Loop:
    """Brings the run to the desired state, step by step, and tells systemd how it is."""

    def __init__(self, run: Run, systemd: Systemd) -> None:
        setup = run.setup
        self._parts = run
        self._children = run.children
        self._world = run.world
        self._desired = setup.desired
        self._inbox = setup.inbox
        self._report = setup.report
        self._clock = setup.clock
        self._systemd = systemd
        self._duties = Duties(setup.report, setup.clock)
        self._started = setup.clock.now()
        self._slips, self._slips_reported_at = 0, -SLIPS_REPORTED_EVERY_S
        self._refused: UserError | None = None
        self._attempts, self._learned_is_kept, self._writer_refused = 0, False, False

    def run(self) -> None:
        """Start the processes, keep them going until told to stop, and see them leave.

        Raises:
            UserError: a process cannot work as configured, or cannot be ended.
        """
        self._begin()
        while not self._finished():
            self._step()
        self._raise_refusals()
        self._save_replay()
        self._raise_unkillable()

    def _begin(self) -> None:
        """Start the processes."""
        resume = self._parts.resume
        self._converge(self._clock.now())
        self._report.event(
            "started", source="supervisor", environment=self._desired.config.env.id,
            resumed=None if resume is None else resume.name, first_tick=self._world.first_tick,
        )
        self._write_status()

    def _step(self) -> None:
        """Wait a moment for messages, then do every duty once."""
        do, parts = self._duties.do, self._parts
        do("fork server", parts.fork_server.tend)
        if not do("listening", self._listen):
            self._clock.sleep_until(self._clock.now() + STEP_S)
        self._inbox.drain_wake()
        now = self._clock.now()
        do("pauses", partial(self._notice_pause, now))
        stopping = self._stopping
        if stopping:
            # First: a process that leaves at a signal to all of them has not died.
            do("stopping", partial(self._stop_all, now))
        for child in self._children:
            do(child.name, partial(self._check, child, now))
        if stopping:
            do("last checkpoint", partial(self._keep_learned, now))
        else:
            do("commands", parts.commands.take)
            do("scaling", partial(self._scale, now))
            do("window", partial(parts.commands.note_new_settings, now))
            do("processes", partial(self._converge, now))
            do("membership", partial(self._update_members, now))
            do("clock", partial(self._start_clock, now))
            do("memory", partial(self._keep_memory, now))
            do("slips", partial(self._note_slips, now))
        # The status shows a change before its sender hears that it is in force.
        do("status", self._write_status)
        do("saver", parts.saving.poll)
        do("answers", partial(parts.pending.settle, now))

    @property
    def _stopping(self) -> bool:
        return self._inbox.stop_requested

    # ---- duties

    def _listen(self) -> None:
        """Wait a moment for messages, and take them in."""
        wake = self._inbox.wake_reader
        for child, message in self._children.listen(wake, STEP_S, self._clock.now):
            self._take(child, *message)

    def _notice_pause(self, now: float) -> None:
        """After a pause of the daemon, or of this process alone, extend every time limit by it."""
        paused_s = self._children.detect_pause(now)
        if paused_s:
            self._parts.pending.postpone(paused_s)
            self._parts.scaling.start_anew()
            self._report.event(
                "paused", source="supervisor", seconds=round(paused_s, 3),
                alone=self._ticked(now - 0.75 * paused_s, now - 0.25 * paused_s),
            )

    def _ticked(self, since: float, until: float) -> bool | None:
        """Whether the world has ticked between two times; None if no tick need have been due, or
        if only later rows are known."""
        ledger, first_tick = self._world.ledger, self._world.first_tick
        # The times of a restored replay may be those of another clock.
        first = max(first_tick, ledger.newest + 1 - MOST_ROWS)
        rows = ledger.read(first, ledger.newest + 1)
        times = rows["time_ns"]
        if ((times > since * NANO) & (times < until * NANO)).any():
            return True
        tick_s = self._world.blueprint.tick_seconds
        later = len(rows) and rows["tick"][0] > first_tick and times[0] >= until * NANO
        return None if later or tick_s > until - since else False

    def _check(self, child: Child, now: float) -> None:
        for speaker, message in self._children.check(child, now, stopping=self._stopping):
            self._take(speaker, *message)

    def _take(self, child: Child, form: str, said: dict[str, Any]) -> None:
        """Take in a message of a child."""
        if form == "command":
            self._inbox.put_from_service(said, child.pipe.send)
            return
        kind = said["kind"]
        details = {name: value for name, value in said.items() if name not in KEYS}
        if kind in ("checkpoint", "checkpoint_failed"):
            details = self._parts.checkpoints.note(details)
        self._report.event(kind, source=child.name, **details)

    def _stop_all(self, now: float) -> None:
        """Have all processes leave."""
        if not self._desired.current.stop:
            why = {} if self._refused is None else {"reason": str(self._refused)}
            self._report.event("stopping", source="supervisor", **why)
            self._attempts = self._checkpoint_attempts
            self._children.last_checkpoint_lost = False
            self._desired.change(stop=True)
        self._children.stop(now)

    def _keep_learned(self, now: float) -> None:
        """Have a last checkpoint written once no learner is left, unless one of them has tried to.

        A learner that is starting, or whose update takes long, is killed before it can write. With
        the fork server all learners die, and until the next step nothing can be started: so a
        refused start is tried once more. Nothing else that fails here is tried again, as it is in
        other duties: a run has to end. A gateway that is started here only says what is not saved.
        """
        if self._learned_is_kept or any(child.alive for child in self._children.of("learner")):
            return
        self._learned_is_kept = True
        tried = self._checkpoint_attempts > self._attempts or self._children.last_checkpoint_lost
        if self._learned_updates > self._world.learner.checkpoints.updates and not tried:
            self._desired.change(learner_ring=[])
            if not self._children.add_writer(now):
                self._learned_is_kept, self._writer_refused = self._writer_refused, True

    @property
    def _learns_here(self) -> bool:
        return self._desired.config.learning.where == "here"

    @property
    def _learned_updates(self) -> int:
        """Updates of the state that the learners share, or that a cluster's learner has sent as
        weights; 0 if there are none."""
        state = self._world.learner
        if self._learns_here:
            return state.progress.updates if state.number else 0
        learned = any(each.applied for each in self._world.metrics.learners)
        info = self._world.weights.info() if learned else None
        return 0 if info is None else info.updates

    @property
    def _checkpoint_attempts(self) -> int:
        """Checkpoints that failed, and of a gateway also those that it has written: as it leaves it
        writes one alone, while one of several learners may do so too early."""
        records = self._world.metrics.learners
        failures = sum(each.checkpoint_failures for each in records)
        return failures + (0 if self._learns_here else sum(each.checkpoints for each in records))

    def _converge(self, now: float) -> None:
        """Start the processes that are missing, and stop those that are too many."""
        service = self._parts.setup.service is not None
        self._children.converge(list(wanted(self._desired.current, service=service)), now)

    def _update_members(self, now: float) -> None:
        """Let the running processes, and no others, take turns in acting and learning."""
        update_members(self._world, self._children.of("inference"), self._desired.current, now)
        ring = learner_ring(self._children.of("learner"), self._desired.current)
        self._desired.change(learner_ring=ring)

    def _start_clock(self, now: float) -> None:
        """Start the world's clock once the agent can act."""
        if not self._desired.current.go:
            needed = self._children.of("inference") + self._children.of("environment")
            ready = all(child.state is State.RUNNING for child in needed)
            if ready or now - self._started > GO_AFTER_S:
                self._desired.change(go=True)

    def _scale(self, now: float) -> None:
        """Follow the automatic number of inference processes."""
        move = self._parts.scaling.step(
            now, self._desired.config, self._desired.current.processes,
            self._children.of("inference"), self._parts.room,
        )
        if move is None:
            return
        self._desired.scale(move.after)
        self._parts.commands.scaled()
        self._report.event(
            "rescaled", source="inference", by="auto", before=move.before, after=move.after,
            why=move.why, inputs=move.inputs,
        )

    def _keep_memory(self, now: float) -> None:
        """Keep memory within its budget."""
        keeping = self._parts.memory_keeping
        try:
            changes = keeping.step(now, self._desired.current)
        except UserError as error:
            self._refused = error
            self._inbox.request_stop()
            return
        if changes is not None:
            self._desired.change(batch_bytes=changes.batch_bytes)
            keeping.give_back(changes)

    def _note_slips(self, now: float) -> None:
        """Report that the clock gave up on catching up."""
        environment = self._world.metrics.environment
        slips = environment.slips
        if slips != self._slips and now - self._slips_reported_at >= SLIPS_REPORTED_EVERY_S:
            self._slips, self._slips_reported_at = slips, now
            behind_ms = round(environment.slipped_ns / 1e6, 1)
            self._report.event("slip", source="environment", slips=slips, slipped_ms=behind_ms)

    def _write_status(self) -> None:
        children = list(self._children)
        ticks = self._world.ledger.newest + 1 - self._world.first_tick
        state = run_state(children, ticks, stopping=self._stopping)
        self._report.write(self._world.status, children, self._desired.config, state)
        self._systemd.step(self._clock.now(), state, self._children.fresh)

    # ---- the end

    def _finished(self) -> bool:
        if self._inbox.given_up is not None:
            # Who is left is killed: one that is told to leave would write a checkpoint.
            self._refused = self._inbox.given_up
            return True
        if self._stopping:
            alive = self._children.alive
            if not alive:
                return self._learned_is_kept
            return alive == self._children.unkillable(self._clock.now())
        booting = self._world.ledger.newest < self._world.first_tick
        return booting and bool(self._boot_failures())

    def _boot_failures(self) -> list[Child]:
        """The processes that died before they ever ran, for a reason that the user can mend."""
        return [each for each in self._children if each.state is State.FAILED and each.boot_error]

    def _raise_refusals(self) -> None:
        if self._refused is not None:
            raise self._refused
        for child in self._boot_failures():
            if not self._stopping:
                raise UserError(f"{child.name}: {child.last_error}")

    def _raise_unkillable(self) -> None:
        left = [f"{child.name} (pid {child.pid})" for child in self._children.alive]
        if left:
            raise UserError(
                f"{', '.join(left)}: not even SIGKILL has ended this process, which waits in the "
                "kernel for a device or a disk, or for a core that other programs keep busy; it is "
                "left behind, and ends after that"
            )

    def _save_replay(self) -> None:
        if not self._desired.config.run.checkpoint_replay:
            return
        saving, handles = self._parts.saving, self._parts.memory.handles
        # A save that is under way lacks the last ticks.
        self._await_save()
        saving.start_save(handles)
        if not saving.busy:
            # As in `_keep_learned`: the fork server may have died just now.
            self._clock.sleep_until(self._clock.now() + STEP_S)
            self._parts.fork_server.tend()
            saving.start_save(handles)
        self._await_save()

    def _await_save(self) -> None:
        while not self._parts.saving.poll(STEP_S):
            self._parts.fork_server.tend()
            if self._inbox.given_up is not None:
                raise self._inbox.given_up
