"""The supervisor: owns the shared memory, starts and watches every process, carries out changes.

Why it is correct. All of it runs in one thread. Other threads and the HTTP service reach it
through queues alone. It never waits for a child (`children.py`), and never for a lock either, whose
holder may be a stopped process that only the supervisor can kill.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from rtagent.clock import Clock
from rtagent.config import Config
from rtagent.errors import UserError
from rtagent.files.pruning import MIB
from rtagent.memory.control import Orders
from rtagent.memory.meter import MemoryMeter
from rtagent.memory.world import World, WorldMemory
from rtagent.processes.launch import ForkServer
from rtagent.processes.limit import check_processes, most_processes
from rtagent.processes.scheduling import prefer_supervisor
from rtagent.processes.systemd import Notifier, Systemd
from rtagent.r3.coordinator import Coordinator
from rtagent.supervisor.checkpoint_requests import CheckpointRequests
from rtagent.supervisor.child import Child, State
from rtagent.supervisor.children import Children, Key
from rtagent.supervisor.command_handler import CommandHandler, DesiredSettings
from rtagent.supervisor.commands import Inbox, PendingChanges, Result
from rtagent.supervisor.duties import Duties
from rtagent.supervisor.live_settings import check_size
from rtagent.supervisor.membership import learner_ring, update_members
from rtagent.supervisor.memory_keeping import MemoryKeeping
from rtagent.supervisor.replay_keeping import Past, ReplayKeeping
from rtagent.supervisor.scaling import Scaling, first_number
from rtagent.supervisor.staffing import Staffing, wanted
from rtagent.supervisor.startup import find_shapes, publish_first_weights
from rtagent.supervisor.status import Report, run_state
from rtagent.telemetry.event_log import EVENTS_FILE, KEYS

STEP_S = 0.1
GO_AFTER_S = 10.0


class Supervisor:
    """Runs one configuration until it is told to stop.

    Args:
        config: the configuration to start with.
        clock: time.
        run_id: name of the run.
        service: body of the HTTP service's process, given the shared memory's handles and its end
            of a pipe; none: no service.
        url: where the service listens.
        preload: further modules for the fork server.
        systemd: told how the run is.
        probed: called once environment and network have been built as configured, and there is
            memory for them.
    """

    def __init__(
        self,
        config: Config,
        clock: Clock,
        run_id: str,
        service: Any = None,
        url: str | None = None,
        preload: tuple[str, ...] = (),
        systemd: Systemd | None = None,
        probed: Callable[[], None] = lambda: None,
    ) -> None:
        self._desired = DesiredSettings(config)
        self._clock = clock
        self._service = service
        self._preload = preload
        self._systemd = systemd or Systemd(Notifier(None))
        self._probed = probed
        self._inbox = Inbox()
        self._pending = PendingChanges()
        self.run_dir = config.state_dir / "runs" / run_id
        events = self.run_dir / EVENTS_FILE
        self._report = Report(run_id, clock, url, events, config.run.events_mb * MIB)
        self._duties = Duties(self._report, clock)
        self._meter = MemoryMeter()
        self._saving = ReplayKeeping(config.state_dir / "replay", self._report, clock)
        self._checkpoints = CheckpointRequests(self._saving)
        self._slips = 0
        self._refused: UserError | None = None
        self._stopping = False
        self._started = clock.now()
        self.world: World | None = None
        self.ended = False

    # ---- from other threads

    def submit(self, name: str, arguments: dict[str, Any]) -> Result:
        """Ask for a change; the future resolves when it is in force, or raises `UserError`."""
        return self._inbox.put(name, arguments)

    def request_stop(self) -> None:
        """Ask for an orderly end. Safe in a signal handler."""
        self._stopping = True
        self._inbox.wake()

    # ---- the supervisor's thread

    @property
    def config(self) -> Config:
        """The configuration with every change so far."""
        return self._desired.config

    def run(self) -> None:
        """Boot, supervise until told to stop, and end every process.

        Raises:
            UserError: something cannot be started as configured; nothing is left behind.
        """
        check_size(self.config)
        self._most_processes = most_processes(self.config)
        check_processes(self.config, self._most_processes)
        if self.config.run.realtime != "off":
            prefer_supervisor()
        self._fork_server = self._saving.fork_server = ForkServer(self._preload)
        memory: WorldMemory | None = None
        children: Children | None = None
        try:
            found = find_shapes(
                self._fork_server, self.config, self.checkpoint_dir, self.run_dir,
                lambda: self._stopping,
            )
            if found is None:
                return
            blueprint, resume = found.blueprint, found.resume
            past = self._saving.find(self.config, blueprint)
            first_tick = 0 if past is None else past.newest + 1
            memory = WorldMemory(self.config, blueprint, first_tick)
            self.world = World(memory.handles)
            # Only now nothing can be refused any more.
            self._probed()
            for kind, details in found.events:
                self._report.event(kind, source="probe", **details)
            staffing = Staffing(
                self._fork_server, memory.handles, self._service, self.checkpoint_dir, resume,
                self.run_dir,
            )
            children = self._children = Children(
                self.world.metrics, staffing.starter, self._report, blueprint.tick_seconds,
                self.config.run.seed, self.config.env,
            )
            self._prepare(memory, resume, past)
            if self._stopping:
                return
            self._populate()
            while not self._finished():
                self._step()
            self._refuse_boot_failures()
            self._save_last_replay()
        finally:
            self.ended = True
            self._saving.abort()
            if children is not None:
                children.kill_all()
            self._fork_server.stop()
            if self.world is not None:
                self.world.close()
            if memory is not None:
                memory.close()
            self._pending.close()
            self._inbox.close()
            self._meter.close()
            self._report.close()
            self._systemd.close()

    @property
    def checkpoint_dir(self) -> Path:
        """Where the learners write."""
        return self.config.state_dir / "checkpoints"

    def _prepare(
        self, memory: WorldMemory, resume: Path | None, past: Past | None
    ) -> None:
        """What must be there before the first worker: orders, a past, weights to act with."""
        world = self._shared
        first = first_number(self.config.inference, world.blueprint.tick_seconds, self._room)
        self._desired.scale(first)
        self._scaling = Scaling(world, self._clock)
        self._desired.publish(world.control)
        world.stagger.reset(
            self._orders.algorithm, self._clock.now(), self._orders.processes
        )
        self._memory, self._resume = memory, resume
        self._coordinator = Coordinator(
            memory, world, self.config, self._clock,
            partial(self._report.event, source="coordinator"), self._pids, private=self._meter,
        )
        self._commands = CommandHandler(
            self._desired, self._inbox, self._pending, self._checkpoints, memory, world,
            self._children, self._coordinator, self._most_processes, self._report, self._clock,
        )
        self._memory_keeping = MemoryKeeping(memory, world, self._coordinator, self._report)
        if past is not None:
            self._saving.begin(
                past, memory.handles, self._coordinator.ticks_limit, lambda: self._stopping
            )
        if not self.config.learning.processes:
            publish_first_weights(
                self._fork_server, memory.handles, resume, lambda: self._stopping
            )

    def _populate(self) -> None:
        """Start the processes."""
        resume = self._resume
        self._children.converge(self._wanted(), self._clock.now())
        self._report.event(
            "started", source="supervisor", environment=self.config.env.id,
            resumed=None if resume is None else resume.name, first_tick=self._shared.first_tick,
        )
        self._write_status()

    @property
    def _shared(self) -> World:
        assert self.world is not None
        return self.world

    @property
    def _orders(self) -> Orders:
        return self._desired.orders

    def _wanted(self) -> list[Key]:
        """The processes that should exist now."""
        return list(wanted(self.config, self._orders, service=self._service is not None))

    # ---- one step

    def _step(self) -> None:
        do = self._duties.do
        do("fork server", self._fork_server.tend)
        if not do("listening", self._listen):
            self._clock.sleep_until(self._clock.now() + STEP_S)
        self._inbox.drain_wake()
        now = self._clock.now()
        do("pauses", partial(self._notice_pause, now))
        for child in self._children:
            do(child.name, partial(self._check, child, now))
        if self._stopping:
            do("stopping", partial(self._stop, now))
        else:
            do("commands", self._commands.take)
            do("scaling", partial(self._scale, now))
            do("window", partial(self._commands.note_new_settings, now))
            do("processes", lambda: self._children.converge(self._wanted(), now))
            do("membership", partial(self._update_members, now))
            do("clock", partial(self._start_clock, now))
            do("memory", partial(self._coordinate, now))
            do("slips", self._note_slips)
        # Whoever is told that a change is in force must be able to read it in the status.
        do("status", self._write_status)
        do("saver", self._saving.poll)
        do("answers", partial(self._pending.settle, now))

    def _listen(self) -> None:
        """Wait a moment for news."""
        wake = self._inbox.wake_reader
        for child, message in self._children.listen(wake, STEP_S, self._clock.now):
            self._take(child, *message)

    def _notice_pause(self, now: float) -> None:
        """After a pause of the whole daemon nobody's time has run out."""
        paused_s = self._children.detect_pause(now)
        if paused_s:
            self._pending.postpone(paused_s)
            self._saving.postpone(paused_s)
            self._scaling.start_anew()
            self._report.event("paused", source="supervisor", seconds=round(paused_s, 3))

    def _check(self, child: Child, now: float) -> None:
        for speaker, message in self._children.check(child, now, stopping=self._stopping):
            self._take(speaker, *message)

    def _stop(self, now: float) -> None:
        """Have everybody leave."""
        if not self._orders.stop:
            self._report.event("stopping", source="supervisor")
        self._desired.order(stop=True)
        self._children.stop(now)

    def _update_members(self, now: float) -> None:
        """Let those act and learn who can."""
        update_members(self._shared, self._children.of("inference"), self._orders, now)
        ring = learner_ring(self._children.of("learner"), self._orders)
        self._desired.order(learner_ring=ring)

    def _take(self, child: Child, form: str, said: dict[str, Any]) -> None:
        """Take in what a child has said."""
        if form == "command":
            self._inbox.put_from_service(said, child.pipe.send)
            return
        kind = said["kind"]
        details = {name: value for name, value in said.items() if name not in KEYS}
        if kind in ("checkpoint", "checkpoint_failed"):
            details = self._checkpoints.note(details)
        self._report.event(kind, source=child.name, **details)

    def _start_clock(self, now: float) -> None:
        """Let the world's clock start once the agent can act."""
        if not self._orders.go:
            needed = self._children.of("inference") + self._children.of("environment")
            ready = all(child.state is State.RUNNING for child in needed)
            if ready or now - self._started > GO_AFTER_S:
                self._desired.order(go=True)

    def _scale(self, now: float) -> None:
        """Follow the automatic number of inference processes."""
        workers = self._children.of("inference")
        move = self._scaling.step(
            now, self.config.inference, self._orders.processes, workers, self._room
        )
        if move is None:
            return
        self._desired.scale(move.after)
        self._commands.scaled()
        self._report.event(
            "rescaled", source="inference", by="auto", before=move.before, after=move.after,
            why=move.why, inputs=move.inputs,
        )

    @property
    def _room(self) -> int:
        """Inference processes that the machine has room for."""
        return self._most_processes - self.config.learning.processes

    def _note_slips(self) -> None:
        """Tell that the clock gave up on catching up."""
        slips = int(self._shared.metrics.environment["slips"][0])
        if slips != self._slips:
            behind_ms = round(int(self._shared.metrics.environment["slipped_ns"][0]) / 1e6, 1)
            self._report.event("slip", source="environment", slips=slips, slipped_ms=behind_ms)
        self._slips = slips

    def _pids(self) -> list[int]:
        """Every process of the daemon."""
        pids = [pid for child in self._children if (pid := child.pid) is not None]
        return [os.getpid(), self._fork_server.pid, *pids]

    def _coordinate(self, now: float) -> None:
        """Keep memory within its budget."""
        try:
            changes = self._memory_keeping.step(now, self._orders)
        except UserError as error:
            self._refused = error
            return
        if changes is not None:
            self._desired.order(batch_bytes=changes.batch_bytes)
            self._memory_keeping.give_back(changes)

    # ---- the end

    def _finished(self) -> bool:
        if self._refused is not None:
            self._stopping = True
        if not self._stopping:
            booting = self._shared.ledger.newest < self._shared.first_tick
            return booting and any(self._boot_failures())
        return not self._children.alive

    def _save_last_replay(self) -> None:
        if self.config.run.checkpoint_replay:
            self._saving.poll()
            if not self._saving.busy:
                self._saving.start_save(self._memory.handles)
            while not self._saving.poll(STEP_S):
                self._fork_server.tend()

    def _boot_failures(self) -> Iterator[Child]:
        """The processes that died before they ever ran, for a reason that the user can mend."""
        for child in self._children:
            if child.state is State.FAILED and child.boot_error:
                yield child

    def _refuse_boot_failures(self) -> None:
        if self._refused is not None:
            raise self._refused
        for child in self._boot_failures():
            if not self._stopping:
                raise UserError(f"{child.name}: {child.last_error}")

    def _write_status(self) -> None:
        children = list(self._children)
        ticks = self._shared.ledger.newest + 1 - self._shared.first_tick
        state = run_state(children, ticks, stopping=self._stopping)
        self._report.write(self._shared.status, children, self.config, state)
        self._systemd.step(self._clock.now(), state, self._children.fresh)
