"""A learner process: sample, compute a gradient, apply it in turn, write checkpoints.

What an update is stands in `shared_update.py` and `algorithms/`, whose turn it is in
`memory/turns.py`; this module decides when. Acting never waits for anything here: weights leave
through the published buffers, and a learner that dies leaves the newest ones.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from rtagent.config import Config, LearningConfig
from rtagent.files.pruning import MIB
from rtagent.learning import state as states
from rtagent.learning.algorithms.registry import algorithm_for
from rtagent.learning.out_of_memory import ask_for, is_out_of_memory, measure_peak, release
from rtagent.learning.replay.batch import Batch
from rtagent.learning.replay.batch_memory import BatchMemory
from rtagent.learning.replay.prefetch import Prefetcher
from rtagent.learning.replay.replay import Replay
from rtagent.learning.score import score
from rtagent.learning.shared_update import STALEST_IN_ROUNDS, Gradient, SharedUpdate
from rtagent.learning.warm_up import empty_batch
from rtagent.memory.process_metrics import add_mark
from rtagent.memory.turns import TurnTaker
from rtagent.memory.weights import WeightsInfo
from rtagent.memory.world import World
from rtagent.policy import networks
from rtagent.policy.actor_critic import build_learned
from rtagent.r3.controller import HorizonKeeper
from rtagent.storage import checkpoint as checkpoints
from rtagent.telemetry import run_record

if TYPE_CHECKING:
    from rtagent.processes.worker import WorkerContext

IDLE_S = 0.02
"""Longest wait between two looks at the world."""
MARK_EVERY_S = 0.25
"""Seconds between two notes of how many gradients were applied, for the rate of updates."""
CREDIT_TICKS = 60.0
"""Ticks whose share of updates may be saved up."""
LEASE_UPDATES = 4
"""A turn's lease lasts at least as long as this many of its holder's updates."""
STREAM = 0x74643321
"""Keeps the noise of target actions apart from the choice of transitions."""
CHECKPOINT_COPIES = 3
"""Of what is learned, in memory while it is written: one of ours, two of the library's."""
NANO = 1e9


def run(context: WorkerContext) -> None:
    """The body of a learner process; returns when it is told to stop."""
    # Acting waits for the first weights, and need not wait for the rest of this.
    if not context.world.weights.number:
        with context.world.turns.hold(context.clock, context.beat):
            if not context.world.weights.number:
                publish_initial(context.world, context.config, context.resume)
    context.set_idle_priority()
    Learner(context).run()


def publish_initial(world: World, config: Config, resume: Path | None) -> None:
    """Publish the weights to act with: resumed, or random.

    Args:
        world: whose weight buffers are filled.
        config: names the network and the seed.
        resume: a checkpoint. If None, random weights.

    Raises:
        CheckpointError: the checkpoint cannot be used.
    """
    network = _build(world, config)
    counters = checkpoints.Counters()
    if resume is not None:
        saved = checkpoints.check(resume, checkpoints.signature(config, world.blueprint))
        states.restore_network(network, "online", saved)
        counters = saved.counters
    acting = _flat(network)[: world.blueprint.parameters]
    world.weights.publish(acting, WeightsInfo(counters.weights_version + 1, counters.updates))


class Learner:
    """The loop of one learner.

    Args:
        context: of the worker process.
    """

    def __init__(self, context: WorkerContext) -> None:
        world, config = context.world, context.config
        self._context = context
        self._record = context.record
        self._signature = checkpoints.signature(config, context.blueprint)
        algorithm = algorithm_for(_build(world, config), config.learning, self._generator())
        self._update = SharedUpdate(algorithm, world.learner, world.weights, config.learning)
        self._keeper = HorizonKeeper(world.horizon, config.r3)
        self._memory = BatchMemory(self._measure_batch)
        self._replay = Replay(world.frames, world.ledger, config.learning, world.priorities)
        self._turns = TurnTaker(
            world.turns,
            context.index,
            context.clock,
            ring=self._ring,
            order=lambda: context.desired.learning.order,
            lease_s=self._lease_s,
            progress_ns=lambda index: int(world.metrics.learners["heartbeat_ns"][index]),
            beat=self._beat,
        )
        self._bad_burst = False
        self._seen_ticks = max(0, world.ledger.newest + 1)
        self._credit = 0.0

    @property
    def _learning(self) -> LearningConfig:
        """The settings in force."""
        return self._context.desired.learning

    def run(self) -> None:
        """Take over the shared state, then learn until told to stop."""
        context = self._context
        # A predecessor may have been killed while it wrote.
        self._record["writing"][0] = 0
        self._take_over()
        self._warm_up()
        self._prefetcher = self._new_prefetcher()
        context.ready()
        clock = context.clock
        next_checkpoint = clock.now() + context.config.run.checkpoint_every_s
        self._marked_at = -math.inf
        try:
            while self._beat():
                self._note_rate()
                if not self._learn():
                    clock.sleep_until(clock.now() + IDLE_S)
                if clock.now() >= next_checkpoint or self._asked_for_checkpoint():
                    if self._is_first():
                        self._write_checkpoint()
                    next_checkpoint = clock.now() + context.config.run.checkpoint_every_s
        finally:
            self._prefetcher.close()
        if self._is_first():
            self._write_checkpoint()

    # ---- the shared state

    def _take_over(self) -> None:
        """Make the shared state out of what is published, if nobody has yet."""
        state = self._update.state
        with self._turns.hold():
            if not state.number:
                states.put(self._first_state(), state)
        progress = state.progress
        self._record["updates"][0] = progress.updates
        self._record["samples_consumed"][0] = progress.samples
        self._note_version()

    def _new_prefetcher(self) -> Prefetcher:
        rng = np.random.default_rng(self._seeds())
        return Prefetcher(self._replay, rng, self._learning.prefetch)

    def _generator(self) -> torch.Generator:
        """Of what the algorithm draws; learners that drew the same would learn less."""
        drawn = np.random.SeedSequence([*self._seeds(), STREAM]).generate_state(1)
        return torch.Generator().manual_seed(int(drawn[0]))

    def _seeds(self) -> list[int]:
        return [self._context.config.run.seed, self._context.index, int(self._record["updates"][0])]

    def _first_state(self) -> states.Snapshot:
        context = self._context
        # As it was built: the same in every learner.
        flat = _flat(self._update.algorithm.network)
        published = context.world.weights.read(flat[: context.blueprint.parameters])
        if published is None:
            raise RuntimeError("no weights could be read: they are published before this")
        if context.resume is not None:
            saved = checkpoints.check(context.resume, self._signature)
            if saved.counters.updates == published.updates:
                return states.from_checkpoint(saved, context.blueprint.learned_tensors)
        return states.begin(flat, published.updates)

    def _warm_up(self) -> None:
        """Compute a gradient without applying it: first calls are slow, and memory is measured."""
        self._update.refresh()
        size = self._context.desired.learning.batch_size
        while True:
            try:
                needed = self._memory.measure(size)
                break
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error) or size == 1:
                    raise
                self._note_out_of_memory(size)
                size //= 2
        with self._turns.hold():
            self._keeper.note_base(needed, size)
        self._context.beat()

    def _measure_batch(self, size: int) -> int:
        """Bytes that learning from batches of a size needs, beyond what the process has anyway."""
        batch = empty_batch(self._context.blueprint, size)
        self._context.beat()
        self._update.compute(batch, 0, whole=True)
        peak = measure_peak(lambda: self._update.compute(batch, 0, whole=True))
        # Beside the batch in use there are those that are ready, and one that is being made.
        batches = self._learning.prefetch + 2
        return peak + batches * (batch.observations.nbytes + batch.next_observations.nbytes)

    # ---- one update

    def _learn(self) -> bool:
        """One update if it is time for one; whether it was."""
        if not self._may_update():
            return False
        desired = self._context.desired
        size = self._keeper.batch_size(desired)
        clock = self._context.clock
        try:
            # While the prefetcher is asked for no more than it has.
            self._memory.require(size)
            batch = self._take(size)
            progress = None if batch is None else self._update.refresh()
            if batch is None or progress is None:
                return False
            started = clock.now()
            gradient = self._update.compute(batch, progress.updates)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error) or size == 1:
                raise
            self._recover_memory(size)
            return True
        self._beat()
        computed = clock.now()
        if not self._turns.enter():
            return False
        entered = clock.now()
        try:
            self._finish(gradient)
        finally:
            self._turns.leave()
        self._record["update_ns"][0] = int((computed - started + clock.now() - entered) * NANO)
        self._credit -= 1.0
        if gradient.finite:
            self._replay.update_priorities(batch, gradient.errors)
        return True

    def _take(self, size: int) -> Batch | None:
        learning, updates = self._learning, int(self._record["updates"][0])
        done = min(1.0, updates / learning.importance_steps)
        beta = learning.importance_exponent + done * (1.0 - learning.importance_exponent)
        return self._prefetcher.take(size, IDLE_S, beta)

    def _finish(self, gradient: Gradient) -> None:
        """Apply a gradient whose turn it is, unless it is too stale or not finite."""
        record, update = self._record, self._update
        stale = update.staleness(gradient)
        if not gradient.finite:
            self._count_skipped(gradient)
            return
        self._bad_burst = False
        if stale > STALEST_IN_ROUNDS * max(1, len(self._context.desired.learner_ring)):
            record["dropped"][0] += 1
            return
        update.learning = self._learning
        after = update.apply(gradient)
        record["applied"][0] += 1
        record["staleness_sum"][0] += stale
        record["staleness_max"][0] = max(stale, int(record["staleness_max"][0]))
        record["loss"][0] = gradient.loss
        record["applied_ns"][0] = int(self._context.clock.now() * NANO)
        record["updates"][0] = after.updates
        record["samples_consumed"][0] = after.samples
        self._note_version()
        self._advance_horizon(gradient.samples, after.updates)

    def _advance_horizon(self, samples: int, updates: int) -> None:
        started = self._context.clock.now()
        metrics, desired = self._context.world.metrics.environment, self._context.desired
        self._keeper.advance(int(started * NANO), samples, updates, metrics, desired)
        self._record["control_ns"][0] += int((self._context.clock.now() - started) * NANO)

    def _recover_memory(self, size: int) -> None:
        """Give back what can be given, and go on with half the batch."""
        self._prefetcher.close()
        self._note_out_of_memory(size)
        self._prefetcher = self._new_prefetcher()

    def _note_out_of_memory(self, size: int) -> None:
        self._update.forget_gradient()
        release()
        with self._turns.hold():
            self._keeper.note_out_of_memory(size)
        self._record["out_of_memory"][0] += 1
        self._context.event("out_of_memory", batch_size=size, next_batch_size=max(1, size // 2))

    def _count_skipped(self, gradient: Gradient) -> None:
        self._record["skipped"][0] += 1
        if not self._bad_burst:
            self._bad_burst = True
            self._context.event(
                "update_skipped", loss=repr(gradient.loss), gradient_norm=repr(gradient.norm),
                updates=gradient.updates,
            )

    def _may_update(self) -> bool:
        world, learning, desired = self._context.world, self._learning, self._context.desired
        ticks = world.ledger.newest + 1
        rate = learning.updates_per_tick / max(1, len(desired.learner_ring))
        self._credit += rate * (ticks - self._seen_ticks)
        self._credit = min(self._credit, max(1.0, rate * CREDIT_TICKS))
        self._seen_ticks = ticks
        if desired.learning.paused or self._context.index not in desired.learner_ring:
            return False
        if self._replay.ticks < learning.learning_starts:
            return False
        return rate == 0.0 or self._credit >= 1.0

    # ---- being one of several

    def _beat(self) -> bool:
        """Stamp the heartbeat; whether to go on."""
        context = self._context
        context.beat()
        return not context.stopping and context.index < context.desired.learning.processes

    def _ring(self) -> list[int]:
        """The learners that take turns now; one that writes a checkpoint holds nobody up."""
        writing = self._context.world.metrics.learners["writing"]
        return [index for index in self._context.desired.learner_ring if not writing[index]]

    def _lease_s(self, index: int) -> float:
        update_s = float(self._context.world.metrics.learners["update_ns"][index]) / NANO
        return max(self._learning.lease_s, LEASE_UPDATES * update_s)

    def _note_version(self) -> int:
        """Put the version of the published weights in the metrics."""
        info = self._context.world.weights.info()
        version = 0 if info is None else info.version
        self._record["weights_version"][0] = version
        return version

    def _note_rate(self) -> None:
        now = self._context.clock.now()
        if now - self._marked_at >= MARK_EVERY_S:
            add_mark(self._record, int(now * NANO))
            self._marked_at = now

    # ---- checkpoints

    def _is_first(self) -> bool:
        """Whether this learner writes the checkpoints."""
        return self._context.index == min(self._context.desired.learner_ring, default=0)

    def _asked_for_checkpoint(self) -> bool:
        return self._context.desired.checkpoint > int(self._update.state.served[0])

    def _write_checkpoint(self) -> None:
        context, record = self._context, self._record
        asked = context.desired.checkpoint
        context.beat()
        started = context.clock.now()
        try:
            # safetensors ends the process where memory is refused to it.
            ask_for(CHECKPOINT_COPIES * states.snapshot_bytes(self._update.state))
            with self._turns.hold():
                self._update.publish()
                snapshot = states.take(self._update.state)
            progress, version = snapshot.progress, self._note_version()
            counters = checkpoints.Counters(progress.updates, progress.samples, version)
            context.beat()
            record["writing"][0] = 1
            network = self._update.algorithm.network
            arrays = states.to_arrays(snapshot, context.blueprint.learned_tensors, network)
            saved = checkpoints.Checkpoint(
                self._signature, counters, arrays, score(context.world.metrics), self._run_record()
            )
            limits = context.config.run
            path = checkpoints.save(
                context.checkpoint_dir, saved, keep=limits.keep_checkpoints,
                most_bytes=limits.checkpoints_mb * MIB, progress=context.beat,
            )
        except (checkpoints.CheckpointError, MemoryError) as error:
            record["checkpoint_failures"][0] += 1
            # Python's own MemoryError has no text.
            reason = str(error) or "out of memory"
            context.event("checkpoint_failed", reason=reason, request=asked)
        else:
            seconds = context.clock.now() - started
            record["checkpoints"][0] += 1
            record["checkpoint_ns"][0] = int(seconds * NANO)
            context.event(
                "checkpoint", file=path.name, updates=counters.updates, request=asked,
                seconds=round(seconds, 3),
            )
        finally:
            record["writing"][0] = 0
        self._update.state.served[0] = asked
        context.beat()


    def _run_record(self) -> dict[str, Any]:
        """What the run is made of, with the settings in force now."""
        context = self._context
        record = run_record.read(context.run_dir)
        return record | {"config": context.world.status.read().get("config", {})}


def _build(world: World, config: Config) -> nn.Module:
    """What is learned in this run, at its beginning the same in every process."""
    torch.manual_seed(config.run.seed)
    blueprint = world.blueprint
    return build_learned(
        config.policy, blueprint.observation_space, blueprint.action_space, config.learning
    )


def _flat(network: nn.Module) -> networks.Floats:
    """A copy of its floating point state, (n,)."""
    flat = np.empty(sum(spec.elements for spec in networks.tensor_specs(network)), np.float32)
    networks.flatten_into(network, flat)
    return flat
