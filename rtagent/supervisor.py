"""The supervisor: owns the shared memory, starts and watches every process, carries out changes.

Why it is correct. All of it runs in one thread, which starts every child (the death signal is
armed per thread) and is the only one to touch the children's state. Other threads and the HTTP
service reach it through queues alone. It never waits for a child: it looks at what is and moves
towards what should be, step by step, so that a child that hangs, dies or is stopped in the middle
of anything delays nothing else. It never waits for the claim lock either, whose holder may be a
stopped process that only the supervisor can kill.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from multiprocess import connection

from rtagent import launch
from rtagent.boot import find_shapes, publish_first_weights
from rtagent.child import Child, Starter, State
from rtagent.clock import Clock
from rtagent.commands import Command, Inbox, PendingChanges, Result
from rtagent.config import Config, parse_config
from rtagent.errors import UserError
from rtagent.memory.actions import NANO
from rtagent.memory.control import Orders
from rtagent.memory.world import World, WorldMemory
from rtagent.report import Report, run_state
from rtagent.worker import Assignment, run_worker

ENTRIES = {
    "environment": "rtagent.env.process:run",
    "inference": "rtagent.inference.process:run",
    "learner": "rtagent.learning.learner:run",
}
STEP_S = 0.1
BOOT_LIMIT_S = 60.0
GO_AFTER_S = 10.0
SETTABLE = frozenset({"processes", "algorithm", "action_deadline_ms"})


class Supervisor:
    """Runs one configuration until it is told to stop.

    Args:
        config: the configuration to start with.
        clock: time.
        run_id: name of the run.
        service: spawns the HTTP service, given the shared memory's handles and a pipe; none: no
            service.
        url: where the service listens.
        preload: further modules for the fork server.
    """

    def __init__(
        self,
        config: Config,
        clock: Clock,
        run_id: str,
        service: Any = None,
        url: str | None = None,
        preload: tuple[str, ...] = (),
    ) -> None:
        self.config = config
        self._clock = clock
        self._service = service
        self._preload = preload
        self._random = random.Random(config.run.seed)
        self._children: dict[tuple[str, int], Child] = {}
        self._inbox = Inbox()
        self._changes = PendingChanges()
        self._report = Report(run_id, clock, url)
        self._stopping = False
        self._short_of_memory = False
        self._started = clock.now()
        self.world: World | None = None

    # ---- from other threads

    def submit(self, name: str, arguments: dict[str, Any]) -> Result:
        """Ask for a change; the future resolves when it is in force, or raises `UserError`."""
        return self._inbox.put(name, arguments)

    def request_stop(self) -> None:
        """Ask for an orderly end. Safe in a signal handler."""
        self._stopping = True
        self._inbox.wake()

    # ---- the supervisor's thread

    def run(self) -> None:
        """Boot, supervise until told to stop, and end every process.

        Raises:
            UserError: something cannot be started as configured; nothing is left behind.
        """
        launch.start_fork_server(self._preload)
        memory: WorldMemory | None = None
        try:
            found = find_shapes(self.config, self.checkpoint_dir, lambda: self._stopping)
            if found is None:
                return
            blueprint, resume = found
            memory = WorldMemory(self.config, blueprint)
            self.world = World(memory.handles)
            self._populate(memory, resume)
            while not self._finished():
                self._step()
            self._refuse_boot_failures()
        finally:
            self._kill_all()
            launch.stop_fork_server()
            if self.world is not None:
                self.world.close()
            if memory is not None:
                memory.close()
            self._changes.close()
            self._inbox.close()

    @property
    def checkpoint_dir(self) -> Path:
        """Where the learners write."""
        return self.config.state_dir / "checkpoints"

    def _populate(self, memory: WorldMemory, resume: Path | None) -> None:
        world, inference = self._shared, self.config.inference
        world.control.write(
            Orders(
                processes=inference.processes,
                rows=inference.processes,
                algorithm=inference.algorithm,
                fill=inference.fill,
                injected_latency_ms=inference.injected_latency_ms,
                injected_latency_distribution=inference.injected_latency_distribution,
                injected_latency_spread=inference.injected_latency_spread,
            )
        )
        world.stagger.reset(inference.algorithm, self._clock.now(), inference.processes)
        self._memory, self._resume = memory, resume
        self._write_status()
        if not self.config.learning.processes:
            publish_first_weights(memory.handles, resume)
        for role, index in self._wanted():
            self._add(role, index)

    @property
    def _shared(self) -> World:
        assert self.world is not None
        return self.world

    def _wanted(self) -> Iterator[tuple[str, int]]:
        """The processes that should exist now, in the order of their start."""
        if self._service is not None:
            yield "service", 0
        yield "environment", 0
        yield from (("learner", index) for index in range(self.config.learning.processes))
        yield from (("inference", index) for index in range(self._shared.control.orders.processes))

    def _add(self, role: str, index: int) -> None:
        child = Child(role, index, self._starter(role, index))
        self._children[role, index] = child
        child.start(self._clock.now())

    def _starter(self, role: str, index: int) -> Starter:
        if role == "service":
            return partial(self._service, self._memory.handles)
        assignment = Assignment(
            role, index, ENTRIES[role], self._memory.handles, self.checkpoint_dir, self._resume
        )
        return partial(launch.spawn, run_worker, assignment, name=f"{role}-{index}")

    # ---- one step

    def _step(self) -> None:
        self._listen()
        now = self._clock.now()
        for child in list(self._children.values()):
            self._look_after(child, now)
        if self._stopping:
            self._order_stop(now)
        else:
            self._take_commands()
            self._converge(now)
            self._synchronize_ring(now)
            self._start_clock(now)
            self._reserve()
        # Whoever is told that a change is in force must be able to read it in the status.
        self._write_status()
        self._settle_changes(now)

    def _listen(self) -> None:
        """Wait for news from anybody, at most `STEP_S`."""
        alive = [child for child in self._children.values() if child.alive]
        voices = {child.voice: child for child in alive if not child.voice.closed}
        sentinels = [child.process.sentinel for child in alive]
        ready = connection.wait([*voices, *sentinels, self._inbox.wake_reader], STEP_S)
        self._inbox.drain_wake()
        for item in ready:
            if item in voices:
                self._hear(voices[item])

    def _hear(self, child: Child) -> None:
        """Read everything that a child has said."""
        try:
            while child.voice.poll(0):
                message = child.voice.recv()
                if isinstance(message, dict):
                    self._inbox.put_from_service(message, child.voice.send)
                elif message[0] == "ready":
                    child.mark_ready(self._clock.now())
                elif message[0] == "failed":
                    child.note_error(message[1]["error"], boot=message[1]["boot"])
                elif message[0] == "event":
                    self._report.event(message[1].pop("kind"), source=child.name, **message[1])
        except (EOFError, OSError):
            child.voice.close()

    def _look_after(self, child: Child, now: float) -> None:
        """Notice death and hang-ups; start again what is due."""
        if child.alive and child.process.exitcode is not None:
            if not child.voice.closed:
                self._hear(child)
            child.reap(now, self._random.random())
            if child.state is not State.STOPPED:
                error = (child.last_error or "").splitlines()[-1:]
                self._report.event(child.state, source=child.name, error="".join(error))
        elif child.alive and child.state is not State.STOPPING:
            limit = self._silence_limit(child)
            heard = float(self._record(child)["heartbeat_ns"][0]) / NANO
            if now - max(heard, child.since) > limit:
                child.kill(f"no heartbeat for {limit:.0f} s")
        child.enforce_stop(now)
        if not self._stopping:
            child.start_if_due(now)

    def _record(self, child: Child) -> Any:
        return self._shared.board.record(child.role, child.index)

    def _silence_limit(self, child: Child) -> float:
        """Seconds without a heartbeat after which a process counts as hung."""
        if child.state is State.STARTING or child.role == "learner":
            return BOOT_LIMIT_S
        if child.role == "inference":
            return 2.0 + 8.0 * float(self._record(child)["estimate_s"][0])
        return 2.0 + 2.0 * self._shared.blueprint.tick_seconds

    def _converge(self, now: float) -> None:
        """Start what is missing and send away what is too many."""
        wanted = set(self._wanted())
        for key in self._wanted():
            child = self._children.get(key)
            if child is None or child.state is State.STOPPED:
                self._add(*key)
        for key, child in self._children.items():
            if key not in wanted:
                child.stop(now)

    def _synchronize_ring(self, now: float) -> None:
        """Let exactly the processes that act, or will within moments, take part in staggering."""
        acting = {
            child.index
            for child in self._children.values()
            if child.role == "inference"
            and (
                child.state is State.RUNNING
                or (child.state is State.STARTING and not child.restarts)
            )
        }
        stagger, lock = self._shared.stagger, self._shared.claim_lock
        orders, members = self._shared.control.orders, self._shared.stagger.membership
        same_algorithm = members.algorithm == orders.algorithm
        if same_algorithm and (not acting or set(members.ring) == acting):
            return
        if not lock.try_enter():
            return
        with lock:
            if not same_algorithm:
                stagger.reset(orders.algorithm, now, orders.processes)
            for worker in sorted(acting):
                stagger.join(worker, now)
            for worker in set(stagger.membership.ring) - acting:
                stagger.leave(worker, now)

    def _start_clock(self, now: float) -> None:
        """Let the world's clock start once the agent can act."""
        orders = self._shared.control.orders
        if not orders.go:
            ready = all(
                child.state is State.RUNNING
                for child in self._children.values()
                if child.role in ("inference", "environment")
            )
            if ready or now - self._started > GO_AFTER_S:
                self._shared.control.write(replace(orders, go=True))

    def _reserve(self) -> None:
        """Keep the rings reserved ahead; a lack of memory is reported once, until it is over."""
        try:
            self._memory.reserve_ahead(self._shared.ledger.newest)
            self._short_of_memory = False
        except UserError as error:
            if not self._short_of_memory:
                self._report.event("memory", source="supervisor", error=str(error))
            self._short_of_memory = True

    # ---- commands

    def _take_commands(self) -> None:
        for command in self._inbox.take():
            try:
                self._carry_out(command)
                self._changes.add(command.result, self._clock.now())
            except UserError as error:
                command.result.set_exception(error)

    def _carry_out(self, command: Command) -> None:
        if command.name != "set_inference":
            raise UserError(f"unknown command {command.name!r}")
        self._set_inference(command.arguments)

    def _set_inference(self, arguments: dict[str, Any]) -> None:
        """Put new inference settings in force, or refuse them whole."""
        if unknown := set(arguments) - SETTABLE:
            raise UserError(f"inference.{sorted(unknown)[0]}: cannot be changed while running")
        values = self.config.model_dump()
        before = {key: values["inference"][key] for key in arguments}
        values["inference"].update(arguments)
        self.config = parse_config(values)
        inference, orders = self.config.inference, self._shared.control.orders
        self._shared.control.write(
            replace(
                orders,
                processes=inference.processes,
                rows=max(orders.rows, inference.processes),
                algorithm=inference.algorithm,
            )
        )
        for child in self._children.values():
            if child.state is State.FAILED and child.role == "inference":
                child.state = State.STOPPED
        self._report.event("set", source="inference", before=before, after=arguments)

    def _settle_changes(self, now: float) -> None:
        inference = self.config.inference
        if self._shared.stagger.algorithm == inference.algorithm:
            workers = [child for child in self._children.values() if child.role == "inference"]
            value = inference.model_dump(mode="json", include=set(SETTABLE))
            self._changes.settle(workers, inference.processes, value, now)

    # ---- the end

    def _order_stop(self, now: float) -> None:
        orders = self._shared.control.orders
        if not orders.stop:
            self._shared.control.write(replace(orders, stop=True))
        for child in self._children.values():
            child.stop(now)

    def _finished(self) -> bool:
        if not self._stopping:
            booting = self._shared.ledger.newest < 0
            return booting and any(self._boot_failures())
        return not any(child.alive for child in self._children.values())

    def _boot_failures(self) -> Iterator[Child]:
        """The processes that died before they ever ran, for a reason that the user can mend."""
        for child in self._children.values():
            if child.state is State.FAILED and child.boot_error:
                yield child

    def _refuse_boot_failures(self) -> None:
        for child in self._boot_failures():
            if not self._stopping:
                raise UserError(f"{child.name}: {child.last_error}")

    def _kill_all(self) -> None:
        for child in self._children.values():
            if child.alive:
                child.process.kill()
                child.process.join()

    def _write_status(self) -> None:
        children = list(self._children.values())
        ticks = self._shared.ledger.newest + 1
        state = run_state(children, ticks, stopping=self._stopping)
        self._report.write(self._shared.status, children, self.config, state)
