"""The learner process: sample, update, publish, write checkpoints.

The algorithm is in `dqn.py`; this module decides when it runs. Acting never waits for anything
here: weights leave through the shared buffers, and a learner that dies leaves the newest ones.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from rtagent import checkpoint as checkpoints
from rtagent import networks
from rtagent.config import Config
from rtagent.learning.dqn import DqnUpdate
from rtagent.learning.replay import Batch, Replay
from rtagent.learning.state import collect, restore, restore_network
from rtagent.memory.blueprint import Blueprint
from rtagent.memory.weights import WeightBuffers, WeightsInfo
from rtagent.memory.world import World

if TYPE_CHECKING:
    from rtagent.worker import WorkerContext

IDLE_S = 0.02
"""Longest wait between two looks at the world."""
RATE_OVER_S = 5.0
"""Seconds over which the rate of updates is measured."""
CREDIT_TICKS = 60.0
"""Ticks whose share of updates may be saved up."""


def run(context: WorkerContext) -> None:
    """The body of a learner process; returns when it is told to stop."""
    # Acting waits for the first weights, and need not wait for the optimizer to be imported.
    if context.world.weights.publication < 0:
        publish_initial(context.world, context.config, context.resume)
    context.give_way()
    Learner(context).run()


def publish_initial(world: World, config: Config, resume: Path | None) -> None:
    """Publish the weights to act with where nobody learns: resumed, or random.

    Args:
        world: whose weight buffers are filled.
        config: names the network and the seed.
        resume: a checkpoint; none: random weights.

    Raises:
        CheckpointError: the checkpoint cannot be used.
    """
    torch.manual_seed(config.run.seed)
    blueprint = world.blueprint
    network = networks.build(config.policy, blueprint.observation_space, blueprint.action_space)
    counters = checkpoints.Counters()
    if resume is not None:
        saved = checkpoints.check(resume, checkpoints.signature(config, blueprint))
        restore_network(network, "online", saved)
        counters = saved.counters
    flat = np.empty(blueprint.parameters, np.float32)
    networks.flatten_into(network, flat)
    world.weights.publish(flat, WeightsInfo(counters.weights_version + 1, counters.updates))


class Learner:
    """The loop of one learner.

    Args:
        context: of the worker process.
    """

    def __init__(self, context: WorkerContext) -> None:
        self._context = context
        self._learning = context.config.learning
        self._record = context.record
        self._weights: WeightBuffers = context.world.weights
        blueprint: Blueprint = context.blueprint
        self._signature = checkpoints.signature(context.config, blueprint)
        network = networks.build(
            context.config.policy, blueprint.observation_space, blueprint.action_space
        )
        self._update = DqnUpdate(network, self._learning)
        self._replay = Replay(context.world.frames, context.world.ledger, self._learning)
        self._flat = np.empty(blueprint.parameters, np.float32)
        self._version = 0
        self._bad_burst = False
        self._seen_ticks = max(0, context.world.ledger.newest + 1)
        self._credit = 0.0

    def run(self) -> None:
        """Take over weights, publish them, then learn until told to stop."""
        context = self._context
        self._take_over()
        self._rng = np.random.default_rng(
            [context.config.run.seed, context.index, self._update.updates]
        )
        self._warm_up()
        context.ready()
        next_checkpoint = context.clock.now() + context.config.run.checkpoint_every_s
        self._rate_since = (context.clock.now(), self._update.updates)
        self._record["updates_per_s"][0] = math.nan
        while not context.stopping:
            if not self._learn():
                context.clock.sleep_until(context.clock.now() + IDLE_S)
            if context.clock.now() >= next_checkpoint:
                self._write_checkpoint()
                next_checkpoint = context.clock.now() + context.config.run.checkpoint_every_s
            self._note_rate()
            context.beat()
        self._publish()
        self._write_checkpoint()

    def _take_over(self) -> None:
        """Start from what is published, and from the checkpoint it came from, if it did."""
        context, update = self._context, self._update
        published = self._weights.read(self._flat)
        if published is None:
            raise RuntimeError("no weights could be read: they are published before this")
        networks.load_flat(update.network, self._flat)
        update.synchronize_target()
        update.updates, self._version = published.updates, published.version
        if context.resume is not None:
            saved = checkpoints.check(context.resume, self._signature)
            if saved.counters.updates == published.updates:
                restore(update, saved)
                self._record["samples_consumed"][0] = saved.counters.samples_consumed
        self._record["updates"][0] = update.updates
        self._record["weights_version"][0] = self._version

    def _warm_up(self) -> None:
        """Run forward and backward once without a step: first calls are slow."""
        blueprint, count = self._context.blueprint, self._learning.batch_size
        dtype = torch.uint8 if blueprint.frame_dtype == "uint8" else torch.float32
        zeros = torch.zeros((count, blueprint.frame_stack, *blueprint.frame_shape), dtype=dtype)
        numbers = torch.zeros(count)
        self._context.beat()
        self._update.compute_gradient(
            Batch(zeros, numbers.long(), numbers, numbers, zeros, numbers.bool())
        )
        self._update.optimizer.zero_grad(set_to_none=True)
        self._context.beat()

    def _learn(self) -> bool:
        """One update if it is time for one; whether it was."""
        self._replay.refresh()
        if not self._may_update():
            return False
        batch = self._replay.sample(self._learning.batch_size, self._rng)
        if batch is None:
            return False
        clock, record, started = self._context.clock, self._record, self._context.clock.now()
        result = self._update.step(batch)
        self._credit -= 1.0
        record["update_ns"][0] = int((clock.now() - started) * 1e9)
        if not result.applied:
            self._count_skipped(result.loss, result.gradient_norm)
            return True
        self._bad_burst = False
        record["loss"][0] = result.loss
        record["updates"][0] = self._update.updates
        record["samples_consumed"][0] += len(batch.serials)
        if self._update.updates % self._learning.publish_every == 0:
            self._publish()
        return True

    def _note_rate(self) -> None:
        since, before = self._rate_since
        now, updates = self._context.clock.now(), self._update.updates
        if now - since >= RATE_OVER_S:
            self._record["updates_per_s"][0] = (updates - before) / (now - since)
            self._rate_since = (now, updates)

    def _may_update(self) -> bool:
        ticks = self._context.world.ledger.newest + 1
        rate = self._learning.updates_per_tick
        self._credit += rate * (ticks - self._seen_ticks)
        self._credit = min(self._credit, max(1.0, rate * CREDIT_TICKS))
        self._seen_ticks = ticks
        if self._context.orders.learning_paused:
            return False
        if self._replay.ticks < self._learning.learning_starts or not len(self._replay):
            return False
        return rate == 0.0 or self._credit >= 1.0

    def _count_skipped(self, loss: float, norm: float) -> None:
        self._record["skipped"][0] += 1
        if not self._bad_burst:
            self._bad_burst = True
            self._context.event(
                "update_skipped", loss=repr(loss), gradient_norm=repr(norm),
                updates=self._update.updates,
            )

    def _publish(self) -> None:
        self._version += 1
        networks.flatten_into(self._update.network, self._flat)
        self._weights.publish(self._flat, WeightsInfo(self._version, self._update.updates))
        self._record["weights_version"][0] = self._version

    def _write_checkpoint(self) -> None:
        context, record = self._context, self._record
        counters = checkpoints.Counters(
            self._update.updates, int(record["samples_consumed"][0]), self._version
        )
        context.beat()
        started = context.clock.now()
        try:
            saved = checkpoints.Checkpoint(self._signature, counters, collect(self._update))
            path = checkpoints.save(context.checkpoint_dir, saved, progress=context.beat)
        except checkpoints.CheckpointError as error:
            record["checkpoint_failures"][0] += 1
            context.event("checkpoint_failed", reason=str(error))
        else:
            record["checkpoints"][0] += 1
            record["checkpoint_ns"][0] = int((context.clock.now() - started) * 1e9)
            context.event("checkpoint", file=path.name, updates=counters.updates)
        context.beat()
