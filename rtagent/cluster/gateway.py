"""The gateway: the process that takes the learners' place when the learner is on another machine.

It samples the replay in shared memory (`buffer_node.py`), or forwards every tick to a replay at the
learner (`forwarding_node.py`). It exchanges messages with the learner (`exchange.py`), applies the
priorities that come back, and publishes the weights. Acting never waits for it: it publishes into
the same buffers as a learner in the daemon, and while the link is cut the newest weights stay in
force.

Whatever Ray does to this process, it may end: the supervisor starts a new one, which joins the
learner as if the link had been cut. So a lost connection to Ray is not repaired in place: if the
head of the cluster or this machine's node is gone, or the learner has not answered for long, this
process ends, and the new one connects from the beginning. It has a single thread, because Ray ends
a local cluster with the thread that started it.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rtagent.clock import NANO
from rtagent.cluster import ray_session
from rtagent.cluster.buffer_node import BufferNode
from rtagent.cluster.exchange import FIRST_PAUSE_S, LONGEST_PAUSE_S, Exchange
from rtagent.cluster.forwarding_node import ForwardingNode
from rtagent.cluster.joining import Joining
from rtagent.cluster.learned_record import LearnedRecord
from rtagent.cluster.link import Emulation
from rtagent.cluster.link_figures import LinkFigures, counted
from rtagent.cluster.message import Bytes, pack, unpack
from rtagent.cluster.node import Node, Settings
from rtagent.cluster.ray_session import LearnerHandle
from rtagent.cluster.trainer import snapshot_arrays, snapshot_from
from rtagent.config import ClusterConfig, LearningConfig
from rtagent.errors import UserError
from rtagent.files.pruning import MIB
from rtagent.learning import state as states
from rtagent.learning.algorithms.registry import algorithm_for
from rtagent.learning.beginning import build_network, first_state, publish_if_nobody_has
from rtagent.learning.checkpointing import CheckpointWriter, is_requested, report_failure
from rtagent.learning.pace import Pace, importance_exponent
from rtagent.learning.replay.replay import Replay
from rtagent.learning.shared_update import SharedUpdate
from rtagent.learning.taking_turns import goes_on
from rtagent.memory.process_metrics import LearnerRecord
from rtagent.memory.turns import TurnTaker
from rtagent.memory.weights import WeightsInfo
from rtagent.processes.freed_memory import keep_freed_memory
from rtagent.storage import checkpoint as checkpoints
from rtagent.telemetry.cluster import OF_A_MOMENT

if TYPE_CHECKING:
    from rtagent.processes.worker import WorkerContext

IDLE_S, PACED_S = 0.05, 0.01
"""Longest wait for a call to end: while nothing else is due, and while updates follow ticks."""
REPORT_EVERY_S = 0.25
LAST_STATE_S = 1.5
"""How long the gateway, told to stop, waits for the learner's state."""
LEASE_S = 1.0
DIGITS = re.compile(r"[0-9]+")
NOT_REACHED = "the learner is not reached"
"""Why a checkpoint is not written."""
CHECK_EVERY_S = 2.0
"""Time between two checks, while the link is cut, whether this process can reach the learner."""


def run(context: WorkerContext[LearnerRecord]) -> None:
    """The body of the gateway's process; returns when it is told to stop."""
    publish_if_nobody_has(context)
    if info := context.world.weights.info():
        # Schedules of a resumed run go on before the learner's first answer.
        context.record.updates = max(context.record.updates, info.updates)
    keep_freed_memory()
    # Before Ray starts: its processes, the learner among them, inherit the priority.
    context.set_idle_priority()
    context.ready()
    remote = _reach(context)
    if remote is None:
        return
    try:
        Gateway(context, remote).run()
    finally:
        ray_session.disconnect()


def _reach(context: WorkerContext[LearnerRecord]) -> LearnerHandle | None:
    """Try for ever to reach the learner; None if told to stop meanwhile.

    Acting goes on with the published weights, and the status says why nothing is learned.
    """
    settings, clock = context.config.cluster, context.clock
    folder = context.config.state_dir / "learner" if settings.address is None else None
    pause_s, known = FIRST_PAUSE_S, set[str]()

    def waiting() -> None:
        context.beat()
        _report_unreached(context, f"a node of the cluster at {settings.address} starts here")

    if settings.address is None:
        _report_unreached(context, "a Ray of this machine alone starts")
    while not context.stopping:
        context.beat()
        try:
            ray_session.connect(settings.address, waiting=waiting)
            return ray_session.find_learner(settings.name, folder)
        except UserError as error:
            reason = str(error)
            # The next attempt connects from the beginning: the cluster may be gone by then.
            ray_session.disconnect()
        # Ray may name the time, a process and a port.
        if (kind := DIGITS.sub("", reason)) not in known:
            context.event("cluster_unreached", reason=reason)
            # Something has changed: the next attempt may succeed.
            known.add(kind)
            pause_s = FIRST_PAUSE_S
        again = clock.now() + pause_s
        while clock.now() < again and not context.stopping:
            _report_unreached(context, reason)
            context.beat()
            clock.sleep_until(clock.now() + REPORT_EVERY_S)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
    if context.record.applied:
        report_unsaved(context, NOT_REACHED)
    return None


class Gateway:
    """The loop of the gateway."""

    def __init__(self, context: WorkerContext[LearnerRecord], remote: LearnerHandle) -> None:
        world, config, clock = context.world, context.config, context.clock
        self._context, self._record = context, context.record
        seeds = [config.run.seed, context.index, int(self._record.updates)]
        assert world.cluster is not None, "there is one where learning is elsewhere"
        self._link = world.cluster
        algorithm = algorithm_for(build_network(config, context.blueprint), config.learning)
        self._update = SharedUpdate(algorithm, world.learner, world.weights, config.learning)
        self._turns = TurnTaker(
            world.turns, context.index, clock, ring=lambda: [context.index],
            order=lambda: "first-come", lease_s=lambda _: LEASE_S,
            progress_ns=lambda _: int(self._record.heartbeat_ns), beat=lambda: goes_on(context),
        )
        slots = _slots(context)
        self._node = _node(context, slots, np.random.default_rng(seeds))
        self._node.count_on(*counted(self._link.read()))
        joining = Joining(
            f"{config.env.id}-{context.run_dir.name}", config, context.blueprint, slots
        )
        emulation = emulation_of(config.cluster)
        self._exchange = Exchange(
            remote, self._node, joining, self._first_state, emulation,
            random.Random(seeds[0]).random, clock.now(), cut_since(self._link.read(), clock.now()),
        )
        self._watch = remote.watch
        self._check_at = clock.now()
        self._learned = LearnedRecord(self._record, context.event)
        self._figures = LinkFigures(self._exchange, self._node, emulation)
        self._pace = Pace(max(0, world.ledger.newest + 1))
        self._checkpoints = CheckpointWriter(context, self._update, self._turns)
        self._report_at = clock.now()

    def run(self) -> None:
        """Sample, send, apply and publish until told to stop.

        Raises:
            UserError: the cluster is gone, or the learner has not answered for long.
        """
        clock = self._context.clock
        while goes_on(self._context):
            learning = self._context.desired.learning
            paced = learning.updates_per_tick and not learning.paused
            idle_s = PACED_S if paced else IDLE_S
            self._exchange.wait(0.0 if self._step() else idle_s, clock.now())
        exchange, end = self._exchange, clock.now() + LAST_STATE_S
        exchange.wants_snapshot = exchange.learns
        while exchange.wants_snapshot and clock.now() < end:
            self._context.beat()
            self._step()
            exchange.wait(PACED_S, clock.now())
        if not exchange.learns:
            report_unsaved(self._context, NOT_REACHED)
        elif exchange.wants_snapshot:
            report_unsaved(self._context, "the learner did not send its state in time")

    def _step(self) -> bool:
        """Do all that is due; whether any shares were sent, or updates or weights have come."""
        now = self._context.clock.now()
        self._exchange.advance(now)
        if not self._exchange.connected and now >= self._check_at:
            self._check(now)
        done = self._take_learned(now)
        done = self._take_weights() or done
        self._take_state()
        done = self._send(now) or done
        if self._checkpoints.due:
            self._ask_for_state()
        if now >= self._report_at:
            self._report_at = now + REPORT_EVERY_S
            self._report(now)
        return done

    def _check(self, now: float) -> None:
        """Raise UserError if this process cannot reach the learner any more."""
        self._watch.check()
        if self._exchange.lost(now):
            raise UserError(f"the learner is looked for anew: {self._exchange.reason}")
        self._check_at = self._context.clock.now() + CHECK_EVERY_S

    # ---- out

    def _send(self, now: float) -> bool:
        learning, world = self._context.desired.learning, self._context.world
        settings = settings_at(learning, self._record.updates)
        ready = not learning.paused and self._node.ticks >= learning.learning_starts
        for _ in range(max(1, room := self._exchange.room)):
            due = self._pace.due(world.ledger.newest + 1, learning.updates_per_tick)
            learn = due and ready
            if not room or not self._exchange.make(settings, learn=learn):
                break
            if learn:
                self._pace.spend()
        return self._exchange.send(now)

    def _ask_for_state(self) -> None:
        """Ask for the learner's state, for a checkpoint, or refuse the checkpoint."""
        self._exchange.wants_snapshot = self._exchange.learns
        if not self._exchange.learns:
            self._checkpoints.refuse(NOT_REACHED)

    # ---- in

    def _take_learned(self, now: float) -> bool:
        learned = self._exchange.learned()
        for each in learned:
            self._learned.note(each, now)
            self._figures.learned(each, now)
        return bool(learned)

    def _take_weights(self) -> bool:
        found = self._exchange.weights()
        if found is None:
            return False
        world = self._context.world
        with self._turns.hold():
            info = world.weights.info()
            version = 1 if info is None else info.version + 1
            world.weights.publish(found.values, WeightsInfo(version, found.updates))
        self._figures.weights_age_s = found.age_s
        return True

    def _take_state(self) -> None:
        """Make the learner's state, if it has come, that of this run, and write a checkpoint."""
        block, self._exchange.snapshot = self._exchange.snapshot, None
        if block is None:
            return
        message = unpack(block)
        parameters = self._context.blueprint.learned_parameters
        snapshot = snapshot_from(message.arrays, parameters)
        with self._turns.hold():
            states.put(snapshot, self._update.state)
        self._checkpoints.write()

    def _first_state(self) -> Bytes:
        """The newest learned state that this daemon has, for a learner without a state."""
        found = newest_state(self._context, self._update)
        progress = self._learned.begin(found.progress)
        return pack({}, snapshot_arrays(replace(found, progress=progress)))

    def _report(self, now: float) -> None:
        self._record.add_mark(int(now * NANO))
        self._link.write(self._figures.document(now))


def settings_at(learning: LearningConfig, updates: int) -> Settings:
    """What the learner is told of the next update, after so many."""
    beta = importance_exponent(learning, updates)
    return Settings(learning.batch_size, learning.step_size(updates), beta)


def emulation_of(settings: ClusterConfig) -> Emulation:
    """What is emulated by these settings."""
    megabits = settings.emulated_bandwidth_mbps
    return Emulation(
        settings.emulated_rtt_ms / 1000, None if megabits is None else megabits * 1e6,
        settings.emulated_loss,
    )


def _node(
    context: WorkerContext[LearnerRecord], slots: int, rng: np.random.Generator
) -> Node:
    """The node that sends the world's transitions or ticks, by the configuration."""
    world, config = context.world, context.config
    if config.cluster.replay == "learner":
        return ForwardingNode(world.frames, world.ledger)
    replay = Replay(world.frames, world.ledger, config.learning, world.priorities)
    return BufferNode(replay, world.frames, slots, rng)


def _slots(context: WorkerContext[LearnerRecord]) -> int:
    """Number of frames that the learner keeps: what fits into its cache, at least two batches'."""
    blueprint, config = context.blueprint, context.config
    least = 2 * config.learning.batch_size * 2 * blueprint.frame_stack
    wanted = config.cluster.cache_mb * MIB // blueprint.frame_bytes
    return max(least, min(wanted, config.replay.capacity))


def _report_unreached(context: WorkerContext[LearnerRecord], reason: str) -> None:
    """Write into the link's document why the learner is not reached; refuse checkpoints."""
    link = context.world.cluster
    assert link is not None, "there is one where learning is elsewhere"
    link.write(unreached(link.read(), context.clock.now(), reason))
    if is_requested(context):
        report_failure(context, context.desired.checkpoint, NOT_REACHED)


def newest_state(
    context: WorkerContext[LearnerRecord], update: SharedUpdate
) -> states.Snapshot:
    """The newest learned state that this daemon has.

    In general the weights that act are newer than the state of the last checkpoint. But of an actor
    with critics they are the actor alone, which critics that have learned nothing would spoil.
    """
    state, shapes, published = update.state, context.blueprint, context.world.weights.info()
    newer = published is not None and published.updates > state.progress.updates
    if state.number and not (newer and shapes.parameters == shapes.learned_parameters):
        return states.take(state)
    begin = partial(first_state, update.algorithm.network, context.world, context.config)
    try:
        return begin(context.resume)
    except checkpoints.CheckpointError as error:
        # The run may have written newer ones since, and removed it.
        reason = f"{error}; learning goes on with the weights that act, and with moments of 0"
        context.event("checkpoint_corrupt", reason=reason)
        return begin(None)


def report_unsaved(context: WorkerContext[LearnerRecord], why: str) -> None:
    """Report, at the stop, that there is no last checkpoint, and which one is the newest.

    The weights that act would not make one: moments, target and critics are at the learner.
    """
    newest = checkpoints.newest(context.checkpoint_dir)
    since = "" if newest is None else f" since {newest.name}"
    reason = f"{why}: what it has learned{since} is not saved here"
    report_failure(context, context.desired.checkpoint, reason)


def unreached(before: Mapping[str, Any], now: float, reason: str) -> dict[str, Any]:
    """The link's document while the learner is not reached: of the figures only counts are known.

    Args:
        before: the document so far; empty if there is none.
        now: seconds.
    """
    known = {name: value for name, value in before.items() if name not in OF_A_MOMENT}
    # The learner tells of the other nodes.
    own = before.get("nodes", [])[:1]
    return {
        **known, "nodes": own, "at": now, "connected": False, "since": cut_since(before, now),
        "reason": reason,
    }


def cut_since(document: Mapping[str, Any], now: float) -> float:
    """Since when the link has been cut, at the start of a gateway, seconds.

    Args:
        document: that the gateway before has left; empty if there was none.
        now: seconds.
    """
    if not document:
        return now
    # If that gateway was connected, it has written until it ended.
    return float(document["at" if document["connected"] else "since"])
