"""A whole run in virtual time, in one process, as fast as it can be computed.

Why its results are those of a live run. World memory, ticks, arbiter, drivers, staggering, replay
and updates are those of the live processes; only the clock is another one. An inference or an
update is computed when it begins, in no time, and takes effect when it would be over; an inference
that is given pending actions is computed when it ends (`acting.py`). The time of an inference is
given, or drawn from the injected latency where that is longer; that of an update is given. A time
that is not given is measured once. All randomness comes from the seed: with given times, two runs
are the same to the bit.
"""

from __future__ import annotations

import timeit
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from rtagent.clock import NANO, whole_ticks
from rtagent.config import Config
from rtagent.config_sources import parse_config
from rtagent.env.adapter import open_environment
from rtagent.env.process import TickLoop
from rtagent.env.reporting_adapter import ReportingAdapter, ReportingDefault
from rtagent.env.wall_clock import TickSchedule
from rtagent.errors import UserError
from rtagent.evaluation.probe import probe_with_weights
from rtagent.inference.standby import Standby
from rtagent.inference.weights import Weights
from rtagent.learning.beginning import build_network, publish_initial
from rtagent.learning.device import Device
from rtagent.learning.replay.sequences import blank
from rtagent.learning.shared_update import SharedUpdate
from rtagent.memory.array_buffer import Floats
from rtagent.memory.blueprint import Blueprint
from rtagent.memory.control import DesiredState
from rtagent.memory.ledger import Rows
from rtagent.memory.process_metrics import Own
from rtagent.memory.world import World, WorldMemory
from rtagent.policy.acting import ActingPolicy
from rtagent.policy.exploration import run_seed
from rtagent.processes.pipe import Pipe
from rtagent.processes.worker import Assignment, WorkerContext
from rtagent.staggering.arbiter import Arbiter
from rtagent.staggering.instructions import Deposit
from rtagent.staggering.merging import MERGES
from rtagent.staggering.virtual_workers import VirtualWorkers, exponential, lateness
from rtagent.storage.demonstration_loading import delay_ticks, find_demonstrations, load
from rtagent.virtual.acting import VirtualDriver
from rtagent.virtual.learning import UpdateTime, VirtualLearners
from rtagent.virtual.result import VirtualRun

OVERSLEEP_S = 100e-6
"""Mean seconds by which a wait of an inference process ends late."""
TICK_LATENESS_S = 200e-6
"""Mean seconds by which a tick is late."""
START_TICKS = 0.37
"""Ticks after the first one at which slots and all inference processes begin, and so between two
ticks."""
TICKS_PER_LOOK = 64
"""Ticks after which memory for the next ticks is reserved, and the rows of these are copied."""
SHORTEST_S = 1e-5
"""Shortest inference or update: as many of them as fill the time are computed, however short."""
REPEATS = 20
"""Inferences, or updates, whose median time is taken."""


def run(
    config: Config, *, seconds: float, seed: int | None = None, policy: Path | None = None,
    inference_s: float | None = None, update_s: float | UpdateTime | None = None,
    checkpoint_dir: Path | None = None,
    progress: Callable[[float], bool | None] = lambda at_s: None,
) -> VirtualRun:
    """Act, and learn if `learning.processes` says so.

    Args:
        config: of the run; what depends on the machine is not applied: a precision of `auto` is
            taken as float32, `learning.placement` as off, `learning.prefetch` as 0, and the replay
            keeps `replay.capacity` whatever `r3.memory_budget_mb` is.
        seconds: of virtual time.
        seed: in place of `run.seed`.
        policy: a checkpoint to begin with. If None, random weights.
        inference_s: seconds of an inference; injected latency counts where it is longer. If None,
            measured here, unless latency is injected.
        update_s: seconds of an update, or a function from its transitions to them. If None,
            measured here.
        checkpoint_dir: where a learner writes a checkpoint at the end. If None, none is written.
        progress: called now and then with the seconds so far; True ends the run.

    Raises:
        UserError: a setting has no counterpart in virtual time, or does not fit; the network
            answers with another number of values, or one that is not finite; or the checkpoint
            cannot be written.
    """
    config = _settled(config, seed)
    if checkpoint_dir is not None and not config.learning.processes:
        raise UserError("learning.processes = 0: nobody learns, so no checkpoint can be written")
    with _one_thread():
        blueprint = probe_with_weights(config)
        past = None
        if config.learning.demonstrations is not None:
            past = find_demonstrations(Path(config.learning.demonstrations), config, blueprint)
        memory = WorldMemory(config, blueprint, 0 if past is None else past.newest + 1)
        world = World(memory.handles)
        try:
            publish_initial(world, config, policy)
            if past is not None:
                load(
                    past, blueprint, world.frames, world.ledger,
                    delay=delay_ticks(config, blueprint),
                    interval=config.learning.demonstration_interval, time_ns=0,
                )
            times = _times(config, blueprint, inference_s, update_s)
            begun = _Run(config, memory, world, policy, checkpoint_dir, *times)
            played = begun.play(seconds, progress)
            if checkpoint_dir is not None:
                begun.save()
            return played
        finally:
            world.close()
            memory.close()


def _settled(config: Config, seed: int | None) -> Config:
    """The configuration without what depends on the machine.

    Raises:
        UserError: a setting has no counterpart in virtual time, or the seed is out of bounds.
    """
    if config.inference.processes == "auto":
        raise UserError("inference.processes = 'auto' does not fit virtual time; use a number")
    try:
        config.require("virtual time", {
            "learning.where": ["here"], "policy.engine": ["torch"], "policy.remote": [None],
            "policy.pretrained": [None],
        })
    except ValueError as error:
        raise UserError(str(error)) from None
    values = config.model_dump()
    for section in ("policy", "learning"):
        if values[section]["precision"] == "auto":
            values[section]["precision"] = "float32"
    values["learning"] |= {"placement": "off", "prefetch": 0}
    if seed is not None:
        values["run"]["seed"] = seed
    return parse_config(values)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let torch use one thread, as in a live process, so that sums do not depend on the cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _times(
    config: Config, blueprint: Blueprint, inference_s: float | None,
    update_s: float | UpdateTime | None,
) -> tuple[float, UpdateTime]:
    """Seconds of an inference without injected latency, and of updates: given, or measured."""
    injected_s = config.inference.injected_latency_ms / 1e3
    if inference_s is None:
        inference_s = 0.0 if injected_s else _forward_s(config, blueprint)
    _check_length("an inference", max(inference_s, injected_s))
    if update_s is None:
        update_s = _update_s(config, blueprint) if config.learning.processes else 1.0
    if not callable(update_s):
        _check_length("an update", update_s)
        constant = update_s
        return inference_s, lambda size: constant
    return inference_s, partial(_checked_s, update_s)


def _checked_s(update_s: UpdateTime, size: int) -> float:
    """Seconds of an update by a user's function."""
    seconds = update_s(size)
    _check_length("an update", seconds)
    return seconds


def _check_length(what: str, seconds: float) -> None:
    if not SHORTEST_S <= seconds < float("inf"):
        raise UserError(f"seconds of {what} = {seconds:g}: must be at least {SHORTEST_S:g}")


def _forward_s(config: Config, blueprint: Blueprint) -> float:
    policy = ActingPolicy.of(config, blueprint)
    policy.warm_up()
    zeros = blueprint.no_observation()
    return _median_s(lambda: policy.values(zeros))


def _update_s(config: Config, blueprint: Blueprint) -> float:
    learning, network = config.learning, build_network(config, blueprint)
    update = SharedUpdate.private(network, learning, device=Device.of(learning))
    batch = blank(blueprint, learning, learning.update_size)
    return _median_s(lambda: update.step(batch))


def _median_s(call: Callable[[], object]) -> float:
    call()
    return float(np.median(timeit.repeat(call, number=1, repeat=REPEATS)))


class _Context(WorkerContext[Own]):
    """Context of a worker that has no supervisor."""

    def event(self, kind: str, **details: Any) -> None:
        """Drop the event, unless a checkpoint cannot be written."""
        if kind == "checkpoint_failed":
            raise UserError(details["reason"])


class _Clock:
    """The world's clock: while it sleeps, the workers go on. Ticks are a little late."""

    def __init__(self, workers: VirtualWorkers, late: Iterator[float]) -> None:
        self._workers, self._late = workers, late

    def now(self) -> float:
        return self._workers.now

    def sleep_until(self, when: float) -> None:
        if when > self._workers.now:
            self._workers.advance(when + next(self._late))


class _Run:
    """One run, and what its workers do (`virtual_workers.Surroundings`)."""

    def __init__(
        self, config: Config, memory: WorldMemory, world: World, resume: Path | None,
        checkpoint_dir: Path | None, inference_s: float, update_s: UpdateTime,
    ) -> None:
        self._config, self._memory, self._world = config, memory, world
        self._folder = checkpoint_dir or Path()
        blueprint, tick_s = world.blueprint, world.blueprint.tick_seconds
        processes, learners = cast(int, config.inference.processes), config.learning.processes
        shown_s = update_s(config.learning.update_size) if learners else None
        self._resume, self._times = resume, (inference_s, shown_s)
        world.control.write(DesiredState(
            config, processes=processes, rows=processes, learner_ring=list(range(learners)),
            go=True,
        ))
        world.stagger.reset(config.inference.algorithm, START_TICKS * tick_s, processes)
        world.actions.limit(processes)
        rng = np.random.default_rng([config.run.seed, 0x76697274])
        self.workers = VirtualWorkers(
            world.stagger, tick_s, exponential(OVERSLEEP_S, rng.spawn(1)[0]), self
        )
        self._clock = _Clock(self.workers, lateness(TICK_LATENESS_S, tick_s, rng.spawn(1)[0]))
        policy = ActingPolicy.of(config, blueprint)
        standby = Standby(policy)
        weights = Weights(world.weights, blueprint.parameters, standby, self._clock)
        self._drivers = [
            VirtualDriver(self._context("inference", index), policy, weights, inference_s)
            for index in range(processes)
        ]
        contexts = [self._context("learner", index) for index in range(learners)]
        self._learners = VirtualLearners(contexts, self.workers, update_s)

    # ---- what the workers do

    def infer(self, worker: int, frame: int) -> float:
        return self._drivers[worker].begin(frame)

    def deposit(self, worker: int, instruction: Deposit) -> None:
        self._drivers[worker].register(instruction)

    def learn(self) -> float:
        return self._learners.learn()

    # ---- the run

    def play(self, seconds: float, progress: Callable[[float], bool | None]) -> VirtualRun:
        """Run so many seconds of ticks."""
        world, config = self._world, self._config
        adapter = open_environment(config.env, ReportingAdapter)
        try:
            first, rate_hz = world.ledger.newest + 1, world.blueprint.rate_hz
            loop = TickLoop(
                adapter, ReportingDefault(config.env, adapter), frames=world.frames,
                ledger=world.ledger, actions=world.actions, record=world.metrics.environment,
                schedule=TickSchedule(rate_hz, 0, first, config.env.max_catch_up_ticks),
                clock=self._clock,
                arbiter=Arbiter(config.inference.fill, merge=MERGES[config.policy.chunk]),
                seed=run_seed(config.run.seed, self._resume) + first, states=world.states,
            )
            self._learners.begin()
            rows: list[Rows] = []
            for done in range(whole_ticks(seconds, rate_hz)):
                loop.run_next()
                self.workers.publish(loop.tick - 1, world.metrics.environment.behind_ns / NANO)
                if done == 0:
                    self._start()
                if (done + 1) % TICKS_PER_LOOK == 0:
                    self._reserve()
                    rows.append(world.ledger.read(loop.tick - TICKS_PER_LOOK, loop.tick))
                    if progress((done + 1) / rate_hz):
                        break
        finally:
            adapter.close()
        read = sum(map(len, rows))
        rows.append(world.ledger.read(first + read, loop.tick))
        records = world.metrics.learners
        return VirtualRun(
            np.concatenate(rows), rate_hz, sum(each.applied for each in records),
            sum(each.skipped for each in records), *self._times, self._weights(),
        )

    def save(self) -> None:
        """Write a checkpoint, as a live run of this configuration does."""
        self._world.status.write({"config": self._config.model_dump(mode="json")})
        self._learners.save()

    def _weights(self) -> Floats:
        """The weights that were published last."""
        flat = np.empty(self._world.blueprint.parameters, np.float32)
        self._world.weights.read(flat)
        return flat

    def _start(self) -> None:
        when = self.workers.now + START_TICKS * self._world.blueprint.tick_seconds
        for index in range(len(self._drivers)):
            self.workers.call_at(when, partial(self.workers.start, index))

    def _reserve(self) -> None:
        capacity = self._config.replay.capacity
        while not self._memory.maintain(self._world.ledger.newest, capacity):
            pass

    def _context(self, role: str, index: int) -> WorkerContext[Any]:
        world = self._world
        folder, handles = self._folder, self._memory.handles
        assignment = Assignment(role, index, "", handles, folder, self._resume, folder)
        record: Any = world.metrics.record(role, index)
        return _Context(assignment, world, record, self._clock, cast(Pipe, None))
