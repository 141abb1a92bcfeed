"""Everything before the loop: makes the parts of a run, in the order in which they can fail.

Whatever is opened is closed again, however the run ends: the processes before the memory that they
use. The address of the service is announced only when environment, network and saved replay fit
together.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rtagent.clock import Clock
from rtagent.memory.meter import MemoryMeter
from rtagent.memory.world import World, WorldMemory
from rtagent.processes.launch import ForkServer
from rtagent.processes.limit import check_processes, most_processes
from rtagent.processes.scheduling import prefer_supervisor
from rtagent.r3.coordinator import Coordinator
from rtagent.supervisor.autoscaler import first_guess
from rtagent.supervisor.checkpoint_requests import CheckpointRequests
from rtagent.supervisor.children import Children
from rtagent.supervisor.command_handler import CommandHandler, Desired
from rtagent.supervisor.commands import Inbox, PendingChanges
from rtagent.supervisor.live_settings import check_size
from rtagent.supervisor.memory_keeping import MemoryKeeping
from rtagent.supervisor.replay_keeping import ReplayKeeping, ReplaySource
from rtagent.supervisor.scaling import Scaling, limits_of
from rtagent.supervisor.staffing import starter_of
from rtagent.supervisor.startup import find_shapes, publish_first_weights, record_run
from rtagent.supervisor.status import Report


@dataclass(frozen=True)
class Setup:
    """What a run is made from, see `Supervisor`.

    Attributes:
        inbox: holds commands, and the request to stop.
        run_dir: where the records of the run are written.
        preload: further modules for the fork server.
    """

    desired: Desired
    clock: Clock
    inbox: Inbox
    report: Report
    run_dir: Path
    service: Any
    preload: tuple[str, ...]
    probed: Callable[[], None]

    @property
    def checkpoint_dir(self) -> Path:
        """Folder of the checkpoints that the learners write."""
        return self.desired.config.state_dir / "checkpoints"

    def stopping(self) -> bool:
        """Whether the run has been asked to end."""
        return self.inbox.stop_requested


@dataclass(frozen=True)
class Run:
    """The parts of a run.

    Attributes:
        most_processes: inference processes and learners that the machine has room for.
        resume: the checkpoint to go on from.
        checkpoints: requests to the learners.
        pending: changes that are not in force yet.
    """

    setup: Setup
    most_processes: int
    fork_server: ForkServer
    memory: WorldMemory
    world: World
    resume: Path | None
    children: Children
    saving: ReplayKeeping
    checkpoints: CheckpointRequests
    pending: PendingChanges
    memory_keeping: MemoryKeeping
    commands: CommandHandler
    scaling: Scaling

    @property
    def room(self) -> int:
        """Inference processes that the machine has room for."""
        return self.most_processes - self.setup.desired.config.learning.processes


def assemble(setup: Setup, opened: ExitStack) -> Run | None:
    """Make the parts of a run; `opened` closes them in the end.

    Returns:
        The run; None if it was told to stop meanwhile.

    Raises:
        UserError: something cannot be started as configured.
    """
    config = setup.desired.config
    check_size(config)
    most = most_processes(config)
    check_processes(config, most)
    if config.run.realtime != "off":
        prefer_supervisor()
    held = opened.enter_context(ExitStack())
    processes = opened.enter_context(ExitStack())
    fork_server = ForkServer(setup.preload)
    processes.callback(fork_server.stop)
    saving = ReplayKeeping(config.state_dir / "replay", setup.report, setup.clock, fork_server)
    processes.callback(saving.abort)
    found = find_shapes(fork_server, config, setup.checkpoint_dir, setup.stopping)
    if found is None:
        return None
    source = saving.find(config, found.blueprint)
    memory = WorldMemory(config, found.blueprint, 0 if source is None else source.newest + 1)
    held.callback(memory.close)
    world = World(memory.handles)
    held.callback(world.close)
    starter = starter_of(
        fork_server, memory.handles, setup.service, setup.checkpoint_dir, found.resume,
        setup.run_dir,
    )
    children = Children(
        world.metrics, starter, setup.report, found.blueprint.tick_seconds, config.run.seed,
        config.env,
    )
    processes.callback(children.kill_all)
    run = _connect(setup, most, fork_server, memory, world, found.resume, children, saving, held)
    _fill(run, source)
    recorded = None if setup.stopping() else record_run(
        fork_server, config, setup.run_dir, setup.stopping
    )
    if recorded is None:
        return None
    # From here on nothing can be refused.
    setup.probed()
    for teller, events in (("probe", found.events), ("record", recorded)):
        for kind, details in events:
            setup.report.event(kind, source=teller, **details)
    return run


def _connect(
    setup: Setup, most: int, fork_server: ForkServer, memory: WorldMemory, world: World,
    resume: Path | None, children: Children, saving: ReplayKeeping, held: ExitStack,
) -> Run:
    """Make the parts that watch and change the run."""
    desired, report, clock = setup.desired, setup.report, setup.clock

    def pids() -> list[int]:
        known = [pid for child in children if (pid := child.pid) is not None]
        return [os.getpid(), fork_server.pid, *known]

    meter = MemoryMeter()
    held.callback(meter.close)
    coordinator = Coordinator(
        memory, world, desired.config, clock, partial(report.event, source="coordinator"), pids,
        meter,
    )
    checkpoints, pending = CheckpointRequests(saving, children), PendingChanges()
    held.callback(pending.close)
    commands = CommandHandler(
        desired, setup.inbox, pending, checkpoints, memory, world, children, coordinator, most,
        report, clock,
    )
    return Run(
        setup, most, fork_server, memory, world, resume, children, saving, checkpoints,
        pending, MemoryKeeping(memory, world, coordinator, report), commands,
        Scaling(world, clock),
    )


def _fill(run: Run, source: ReplaySource | None) -> None:
    """Write what the first worker needs: settings, the replay's first content, weights."""
    setup, world, handles = run.setup, run.world, run.memory.handles
    desired = setup.desired
    if desired.config.inference.processes == "auto":
        limits = limits_of(desired.config, world.blueprint.tick_seconds, run.room)
        desired.scale(first_guess(limits))
    desired.publish(world.control)
    state = desired.current
    world.stagger.reset(state.inference.algorithm, setup.clock.now(), state.processes)
    if source is not None:
        run.saving.fill(source, handles, run.memory_keeping.ticks_limit, setup.stopping)
    if not desired.config.learning.processes and desired.config.policy.learns:
        publish_first_weights(run.fork_server, handles, run.resume, setup.stopping)
