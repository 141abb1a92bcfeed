"""A learner process: sample, compute a gradient, apply it in turn, write checkpoints.

This module decides when each of these happens. The update itself is in `shared_update.py` and
`algorithms/`, the beginning of learning in `beginning.py`, the order of the learners in
`memory/turns.py`. Acting never waits for a learner: it reads the published weights, and those stay
if a learner dies.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rtagent.clock import NANO
from rtagent.config import LEARNING_PRECISIONS, LearningConfig
from rtagent.learning import state as states
from rtagent.learning.agreed_precision import AgreedPrecision
from rtagent.learning.algorithms.policy_gradient import PolicyGradient
from rtagent.learning.algorithms.registry import algorithm_for
from rtagent.learning.beginning import build_network, first_state, publish_if_nobody_has
from rtagent.learning.checkpointing import CheckpointWriter
from rtagent.learning.device import Device
from rtagent.learning.on_policy import OnPolicyBatches
from rtagent.learning.out_of_memory import is_out_of_memory, measure_peak, release
from rtagent.learning.pace import Pace, importance_exponent
from rtagent.learning.placing import Placing
from rtagent.learning.replay.batch import Batch
from rtagent.learning.replay.batch_memory import BatchMemory
from rtagent.learning.replay.prefetch import Prefetcher
from rtagent.learning.replay.replay import ROWS_PER_REFRESH, Replay
from rtagent.learning.replay.rollouts import Rollout, Rollouts
from rtagent.learning.replay.sequences import SequenceReplay, blank
from rtagent.learning.shared_update import STALEST_IN_ROUNDS, Gradient, SharedUpdate, loss_scale_of
from rtagent.learning.taking_turns import goes_on, turn_taker
from rtagent.memory.learner_state import Progress
from rtagent.memory.process_metrics import PLACEMENTS, LearnerRecord
from rtagent.processes.freed_memory import keep_freed_memory
from rtagent.r3.controller import HorizonKeeper

if TYPE_CHECKING:
    from rtagent.processes.worker import WorkerContext

IDLE_S = 0.02
"""Longest wait between two looks at the world."""
MARK_EVERY_S = 0.25
"""Seconds between two records of the number of applied gradients, for the rate of updates."""
SHRUNK = 4
"""Memory is given back when a batch is smaller than the largest batch by more than this factor; R3
often changes the batch size by a factor of 2."""
STREAM = 0x74643321
"""Part of the seed of the algorithm's noise, so that it differs from the seed of the sampling."""


def run(context: WorkerContext[LearnerRecord]) -> None:
    """The body of a learner process; returns when it is told to stop."""
    publish_if_nobody_has(context)
    context.set_idle_priority()
    keep_freed_memory()
    Learner(context).run()


@dataclass(frozen=True)
class Computed:
    """A gradient that is ready to be applied, and its batch; both are valid until the next one.

    Attributes:
        taken_s: seconds that the computation took.
    """

    batch: Batch
    gradient: Gradient
    taken_s: float


class Learner:
    """The loop of one learner."""

    def __init__(self, context: WorkerContext[LearnerRecord]) -> None:
        world, config = context.world, context.config
        self._context = context
        self._record = context.record
        self._device = device = Device.of(config.learning)
        network = build_network(config, context.blueprint).to(device.device)
        algorithm = algorithm_for(network, config.learning, device.generator(config.run.seed))
        device.pin(world.learner.payload)
        device.pin(world.weights.payload)
        self._update = SharedUpdate(
            algorithm, world.learner, world.weights, config.learning, device, context.event
        )
        self._keeper = HorizonKeeper(world.horizon, config.r3)
        self._memory = BatchMemory(self._measure_batch)
        self._placing = Placing(
            self._update, config, context.blueprint, context.clock, self._memory.require_twice,
            context.beat, context.event,
        )
        kind = SequenceReplay if context.blueprint.state_size else Replay
        self._replay = kind(world.frames, world.ledger, config.learning, world.priorities)
        self._turns = turn_taker(context)
        self._precision = AgreedPrecision(context, self._update, self._turns)
        self._pace = Pace(max(0, world.ledger.newest + 1))
        self._bad_burst = False
        self._lost = 0
        self._largest_batch = 0
        self._marked_at = -math.inf

    @property
    def _learning(self) -> LearningConfig:
        """The settings in force."""
        return self._context.desired.learning

    def run(self) -> None:
        """Take over the shared state, learn until told to stop, and write the last checkpoint."""
        if self._context.stopping:
            # It takes the place of learners that have died.
            self._take_over()
        else:
            self._learn_on()
        self.new_checkpoint_writer().write()

    def _learn_on(self) -> None:
        context, clock = self._context, self._context.clock
        self.begin()
        context.ready()
        checkpoints = self.new_checkpoint_writer()
        try:
            while goes_on(context):
                self._note_rate()
                if not self._learn_in_turn():
                    clock.sleep_until(clock.now() + IDLE_S)
                if checkpoints.due:
                    checkpoints.write()
            if self._device.apart:
                # Another learner may go on from here, or write the last checkpoint.
                with self._turns.hold():
                    self._update.store()
        finally:
            self._prefetcher.close()
            self._placing.close()

    def new_checkpoint_writer(self) -> CheckpointWriter:
        """The writer of this run's checkpoints in this learner."""
        return CheckpointWriter(self._context, self._update, self._turns)

    # ---- before the first update

    def begin(self) -> None:
        """Take over the shared state, and prepare everything that the first update needs."""
        self._take_over()
        self._warm_up()
        # Until its index is complete it has no batch, and the others would wait for its turn.
        if not self._learning.on_policy:
            while self._replay.refresh() >= ROWS_PER_REFRESH and goes_on(self._context):
                pass
        self._prefetcher = self._new_prefetcher()

    def _take_over(self) -> None:
        """Create the shared state from the published weights, unless another learner has."""
        context, state = self._context, self._update.state
        with self._turns.hold():
            if not state.number:
                network = self._update.algorithm.network
                first = first_state(network, context.world, context.config, context.resume)
                states.put(first, state)
        self._count(state.progress)
        self._seed_noise()

    def _new_prefetcher(self) -> Prefetcher | OnPolicyBatches:
        rng = np.random.default_rng(self._seeds())
        algorithm, world = self._update.algorithm, self._context.world
        if isinstance(algorithm, PolicyGradient):
            rollouts = Rollouts(world.frames, world.ledger, self._learning, self._context.event)

            def prepare(rollout: Rollout) -> Batch:
                # Advantages are computed with the newest weights.
                self._update.refresh()
                return algorithm.prepare(rollout)

            return OnPolicyBatches(rollouts, algorithm, prepare, rng)
        return Prefetcher(self._replay, rng, self._learning.prefetch, self._device)

    def _seed_noise(self) -> None:
        """Have each learner, and each run that goes on, draw different noise."""
        generator = self._update.algorithm.generator
        if generator is not None:
            seed = np.random.SeedSequence([*self._seeds(), STREAM]).generate_state(1)
            generator.manual_seed(int(seed[0]))

    def _seeds(self) -> list[int]:
        return [self._context.config.run.seed, self._context.index, self._record.updates]

    def _warm_up(self) -> None:
        """Compute gradients without applying them: the first calls are slow, and measure memory."""
        self._update.refresh()
        self._precision.follow()
        self._show_placement()
        size = self._learning.update_size
        while (needed := self._measured(size)) is None:
            self._note_out_of_memory(size)
            size //= 2
        with self._turns.hold():
            self._keeper.note_base(needed, size)
        self._context.beat()

    def _measured(self, size: int) -> int | None:
        """The bytes that learning from batches of a size needs; None if they cannot be had."""
        try:
            return self._memory.measure(size)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error) or size == 1:
                raise
        return None

    def _measure_batch(self, size: int) -> int:
        """The bytes that learning from batches of a size needs, beyond what the process has."""
        batch = blank(self._context.blueprint, self._learning, size)
        self._context.beat()
        self._update.compute(batch, 0, whole=True)
        peak = measure_peak(lambda: self._update.compute(batch, 0, whole=True))
        # The batch in use, the batches that are ready, and the batch that is being made.
        batches = self._learning.prefetch + 2
        return peak + batches * sum(each.nbytes for each in (*batch.inputs, *batch.next_inputs))

    # ---- one update

    def _learn_in_turn(self) -> bool:
        """Try to make one update; if acting waits for learning, try once for each action.

        Returns:
            Whether the loop may go on without a pause.
        """
        if not self._context.desired.inference.sequential:
            return self._learn()
        alternation = self._context.world.alternation
        permit = alternation.wait_for_permit(self._context.clock, IDLE_S)
        if permit is not None:
            self._learn()
            alternation.answer(permit)
        return True

    def _learn(self) -> bool:
        """Make an update if it is time for one; returns whether one was applied."""
        computed = self.compute()
        return computed is not None and self.apply(computed)

    def compute(self) -> Computed | None:
        """The gradient of a batch, if it is time for an update and a batch is ready."""
        if not self._may_update():
            return None
        size = self._keeper.batch_size(self._context.desired)
        try:
            return self._compute(size)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error) or size == 1:
                raise
            # No other batch may be made while the memory of this one is given up.
            self._prefetcher.close()
        # Only now, for the error held what the failed update had allocated.
        self._note_out_of_memory(size)
        self._prefetcher = self._new_prefetcher()
        return None

    def _compute(self, size: int) -> Computed | None:
        """The gradient of a batch of a size, if one is ready."""
        clock = self._context.clock
        self._release_after(size)
        # Before the prefetcher is asked for a larger batch than it has memory for.
        self._memory.require(size)
        self._precision.agree(size)
        self._place(size)
        beta = importance_exponent(self._learning, self._record.updates)
        batch = self._prefetcher.take(size, IDLE_S, beta)
        progress = None if batch is None else self._update.read()
        if batch is None or progress is None:
            return None
        self._placing.begin(size)
        started = clock.now()
        gradient = self._update.compute(batch, progress.updates)
        taken_s = clock.now() - started
        self._placing.end(taken_s)
        return Computed(batch, gradient, taken_s)

    def apply(self, computed: Computed) -> bool:
        """Apply a gradient when its turn has come; False if its turn does not come."""
        self._context.beat()
        if not self._turns.enter():
            return False
        entered, clock = self._context.clock.now(), self._context.clock
        try:
            self._finish(computed.gradient)
            batches = self._prefetcher
            if isinstance(batches, OnPolicyBatches) and batches.rollout_is_done:
                # So that acting uses all that was learned from this rollout in the next one.
                self._update.publish_if_newer()
        finally:
            self._turns.leave()
        self._record.update_ns = int((computed.taken_s + clock.now() - entered) * NANO)
        self._pace.spend()
        if computed.gradient.finite:
            self._replay.update_priorities(computed.batch, computed.gradient.errors)
        return True

    def _place(self, size: int) -> None:
        """Plan the steps of a new batch size, if placement is on."""
        self._placing.size = size
        self._show_placement()
        if self._placing.prepare(size):
            # A step with a plan needs more memory than one without.
            self._memory.measure(size)
        self._show_placement()

    def _show_placement(self) -> None:
        self._record.placement = PLACEMENTS.index(self._placing.state)
        self._record.precision = 1 + LEARNING_PRECISIONS.index(self._placing.precision)

    def _may_update(self) -> bool:
        learning, desired = self._learning, self._context.desired
        rate = learning.updates_per_tick / max(1, len(desired.learner_ring))
        due = self._pace.due(self._context.world.ledger.newest + 1, rate)
        if learning.paused or self._context.index not in desired.learner_ring:
            return False
        return due and self._replay.ticks >= learning.learning_starts

    def _finish(self, gradient: Gradient) -> None:
        """Apply a gradient in its turn, unless it is too stale or not finite."""
        context, record, update = self._context, self._record, self._update
        stale = update.staleness(gradient)
        if gradient.overflowed:
            record.overflows += 1
            self._precision.note_scale(update.lower_scale(gradient))
            return
        if not gradient.finite:
            self._count_skipped(gradient)
            return
        self._bad_burst = False
        if stale > STALEST_IN_ROUNDS * max(1, len(context.desired.learner_ring)):
            record.dropped += 1
            return
        update.learning = self._learning
        after = update.apply(gradient, alone=context.desired.learner_ring == [context.index])
        record.applied += 1
        record.dropped += update.lost - self._lost
        self._lost = update.lost
        record.staleness_sum += stale
        record.staleness_max = max(stale, record.staleness_max)
        record.loss = gradient.loss
        record.applied_ns = int(context.clock.now() * NANO)
        self._count(after)
        self._precision.note_scale(loss_scale_of(after))
        metrics = context.world.metrics.environment
        started_ns = int(context.clock.now() * NANO)
        self._keeper.advance(started_ns, gradient.samples, after.updates, metrics, context.desired)
        record.control_ns += int(context.clock.now() * NANO) - started_ns

    def _count(self, progress: Progress) -> None:
        """Show how far learning is; counts do not go back where a GPU's updates have been lost."""
        record = self._record
        record.updates = max(record.updates, progress.updates)
        record.samples_consumed = max(record.samples_consumed, progress.samples)

    def _count_skipped(self, gradient: Gradient) -> None:
        self._record.skipped += 1
        if not self._bad_burst:
            self._bad_burst = True
            self._context.event(
                "update_skipped", loss=repr(gradient.loss), gradient_norm=repr(gradient.norm),
                updates=gradient.updates,
            )

    def _release_after(self, size: int) -> None:
        """Give back the memory of larger batches, if a batch of this size is far smaller."""
        if SHRUNK * size < self._largest_batch:
            release()
            self._largest_batch = size
        self._largest_batch = max(size, self._largest_batch)

    def _note_out_of_memory(self, size: int) -> None:
        """Give back unused memory, and halve the largest batch size."""
        self._update.algorithm.network.zero_grad(set_to_none=True)
        release()
        with self._turns.hold():
            self._keeper.note_out_of_memory(int(self._context.clock.now() * NANO), size)
        self._record.out_of_memory += 1
        self._context.event("out_of_memory", batch_size=size, next_batch_size=max(1, size // 2))

    def _note_rate(self) -> None:
        now = self._context.clock.now()
        if now - self._marked_at >= MARK_EVERY_S:
            self._record.add_mark(int(now * NANO))
            self._marked_at = now
