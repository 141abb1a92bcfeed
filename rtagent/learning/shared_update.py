"""One learner's part of the common update: read weights, compute a gradient, apply it in turn.

All learners work on one set of weights, one Adam and one target network, in shared memory
(`memory/learner_state.py`). A gradient is computed on a private copy of the weights. Its staleness
is the number of updates that others have applied since that copy was made. `SharedUpdate.private`
and `step` do the same for a single learner in private memory. Where weights and moments are while
they change: `optimizer.py`.

An actor may be updated only once in several updates of its critics. The shared state says whether
its update is due. That is looked up twice: when a gradient is computed, for without the actor that
is cheaper, and when it is applied, for another learner may have updated the actor meanwhile.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np
import torch
from torch import Tensor, nn

from rtagent.config import LearningConfig, Precision
from rtagent.learning import state as states
from rtagent.learning.adam import clip_
from rtagent.learning.algorithms.algorithm import Algorithm
from rtagent.learning.algorithms.registry import algorithm_for
from rtagent.learning.cuda_graph import GraphedCompute, gpu_recorder
from rtagent.learning.device import HOST, Device
from rtagent.learning.device_optimizer import STORE_EVERY, DeviceOptimizer
from rtagent.learning.flat import FlatNetwork
from rtagent.learning.optimizer import HostOptimizer, Optimizer
from rtagent.learning.precision import (
    LEAST_EXPONENT,
    LossScale,
    PrecisionTimes,
    fastest,
    has_convolutions,
    is_usable,
)
from rtagent.learning.replay.batch import Batch
from rtagent.memory.learner_state import LearnerState, Progress
from rtagent.memory.weights import WeightBuffers, WeightsInfo
from rtagent.policy.networks import flattened

STALEST_IN_ROUNDS = 2
"""A gradient is dropped if it is staler than this many updates of each learner."""


@dataclass(frozen=True)
class Gradient:
    """A gradient that waits for its turn; its values are in `SharedUpdate.gradient`.

    Attributes:
        loss: of the batch.
        norm: before clipping.
        errors: (B,) absolute errors, for the priorities.
        updates: number of updates in the weights that it was computed on.
        samples: transitions of the batch.
        acting: whether it has a part for the acting part of the network.
        scale: the loss scale, by which the gradient has been divided again. If None, there was
            none.
    """

    loss: float
    norm: float
    errors: Tensor
    updates: int
    samples: int
    acting: bool = True
    scale: LossScale | None = None

    @property
    def finite(self) -> bool:
        """Whether loss and gradient are finite, so that it can be applied."""
        return math.isfinite(self.loss) and math.isfinite(self.norm)

    @property
    def overflowed(self) -> bool:
        """Whether the gradient is not finite because the loss scale was too large."""
        scaled = self.scale is not None and self.scale.exponent > LEAST_EXPONENT
        return scaled and math.isfinite(self.loss) and not math.isfinite(self.norm)


class SharedUpdate:
    """One learner's view of the shared weights.

    Args:
        algorithm: computes gradients on its own networks, whose weights are overwritten here.
        state: the state that all learners share.
        weights: the buffers in which weights are published for inference.
        learning: step size, clipping, target network, how often to publish.
        device: where the algorithm's networks are.
        event: sends an event: event(kind, **details).

    Attributes:
        learning: may be replaced when settings change.
        gradient: (parameters,) the gradient that was computed last, clipped; on the device.
    """

    def __init__(
        self, algorithm: Algorithm, state: LearnerState, weights: WeightBuffers,
        learning: LearningConfig, device: Device = HOST,
        event: Callable[..., object] = lambda kind, **details: None,
    ) -> None:
        self.algorithm, self.state, self.weights = algorithm, state, weights
        self.learning, self._device = learning, device
        self._network = FlatNetwork(algorithm.network)
        self.gradient = torch.zeros(self._network.size, device=device.device)
        self._parts = list(_slices(algorithm.parts))
        self._acting = self._parts[0]
        given = state, self._network, FlatNetwork(algorithm.target), self._parts
        self._optimizer: Optimizer
        if device.apart:
            self._optimizer = DeviceOptimizer(*given, device)
        else:
            self._optimizer = HostOptimizer(*given)
        self._normalizing = [
            each for network in algorithm.networks for each in network.modules()
            if isinstance(each, nn.modules.batchnorm._BatchNorm) and each.training
        ]
        self._graphed: GraphedCompute | None = None
        if device.device.type == "cuda":
            self._graphed = GraphedCompute(
                self._compute_gradient, gpu_recorder(device.device, algorithm.generator),
                lambda reason: event("cuda_graph_refused", reason=reason),
            )
        self._read = Progress()

    @classmethod
    def private(
        cls, network: nn.Module, learning: LearningConfig,
        generator: torch.Generator | None = None, device: Device = HOST,
    ) -> SharedUpdate:
        """An update of a single learner, in private memory.

        Args:
            network: as `beginning.build_network` gives it; learning begins with its weights.
            learning: as above.
            generator: as `algorithm_for` takes it.
            device: where the gradients are computed; the network is moved there.
        """
        algorithm = algorithm_for(network.to(device.device), learning, generator)
        flat, acting = flattened(network), FlatNetwork(algorithm.parts[0]).size
        sizes = LearnerState.size(len(flat)), WeightBuffers.size(acting)
        memory, published = (_zeros(size, device) for size in sizes)
        state = LearnerState(memory, len(flat))
        states.put(states.begin(flat, 0), state)
        return cls(algorithm, state, WeightBuffers(published, acting), learning, device)

    def step(self, batch: Batch) -> Gradient:
        """Make one whole update of a single learner.

        Returns:
            The gradient. It was applied if it is finite; the new weights are in the network after
            `refresh`, and in `state.current` after `store`.
        """
        self.read()
        gradient = self.compute(batch, self.progress.updates)
        if gradient.finite:
            self.apply(gradient, alone=True)
        elif gradient.overflowed:
            self.lower_scale(gradient)
        return gradient

    # ---- at any time

    def refresh(self) -> Progress | None:
        """Load the newest weights and target network.

        Returns:
            The progress of the weights; None if others wrote so fast that no whole copy was read.
        """
        progress = self.read()
        if progress is not None:
            self._optimizer.fill()
        return progress

    def read(self) -> Progress | None:
        """Do what `refresh` does, but load the network perhaps only when a gradient is computed."""
        progress = self._optimizer.load()
        if progress is not None:
            self._read = progress
        return progress

    @property
    def whole(self) -> bool:
        """Whether the next gradient includes the acting part, by the weights loaded last."""
        return self._acting_is_due(self._read)

    def compute(self, batch: Batch, updates: int, *, whole: bool = False) -> Gradient:
        """Compute the gradient of a batch on the weights read last.

        Args:
            batch: transitions.
            updates: of the progress that `read` or `refresh` returned.
            whole: include the acting part even if its update is not due.
        """
        acting, algorithm = whole or self.whole, self.algorithm
        scale = loss_scale_of(self._read) if algorithm.precision == "float16" else None
        algorithm.loss_scale = 1.0 if scale is None else scale.value
        for each in self._normalizing:
            # It refuses a batch of one, which has no spread, unless it uses its averages.
            each.train(batch.at_once > 1)
        batch = self._device.send(batch)
        if self._graphed is None:
            numbers, errors = self._compute_gradient(batch, acting)
        else:
            key = algorithm.precision, algorithm.loss_scale
            numbers, errors = self._graphed(batch, acting, key)
        self._device.wait()
        loss, *norms = numbers.tolist()
        for part, norm in zip(self._parts, norms, strict=True):
            clip_(self.gradient[part], norm, self.learning.gradient_clip)
        norm = math.hypot(*norms)
        return Gradient(loss, norm, errors, updates, len(batch.actions), acting, scale)

    def _compute_gradient(self, batch: Batch, acting: bool) -> tuple[Tensor, Tensor]:
        """Put the gradient of a batch into `gradient`, not clipped yet.

        Returns:
            (1 + parts,) the loss, and the norm of each part's gradient; (B,) the errors.
        """
        algorithm = self.algorithm
        self._optimizer.fill()
        loss, errors = algorithm.compute_gradient(batch, acting=acting)
        self._network.gradient_into(self.gradient, 1.0 / algorithm.loss_scale)
        norms = [torch.linalg.vector_norm(self.gradient[part]) for part in self._parts]
        return torch.stack([loss.float(), *norms]), errors

    def measure_precisions(
        self, batch_of: Callable[[int], Batch], batch_size: int, beat: Callable[[], object]
    ) -> PrecisionTimes:
        """Measure which precision computes gradients the fastest; the precision in use stays.

        Args:
            batch_of: makes a batch of a size.
            batch_size: of the updates to come.
            beat: called before each gradient.
        """
        algorithm, device = self.algorithm, self._device
        before = algorithm.precision

        @lru_cache(maxsize=1)
        def sent_batch(size: int) -> Batch:
            return device.send(batch_of(size))

        def run(precision: Precision, size: int) -> None:
            beat()
            algorithm.precision = precision
            self.compute(sent_batch(size), 0, whole=True)

        try:
            usable = partial(
                is_usable, convolves=has_convolutions(algorithm.network), now=device.now,
                device=device.device,
            )
            # The second call records a graph, which takes far longer than an update.
            warm_ups = 1 if self._graphed is None else 2
            return fastest(run, batch_size, now=device.now, usable=usable, warm_ups=warm_ups)
        finally:
            algorithm.precision = before

    # ---- under the apply lock

    @property
    def progress(self) -> Progress:
        """How far learning is, updates that are not stored yet included."""
        return self._optimizer.progress

    @property
    def lost(self) -> int:
        """Updates that this learner has applied, and that are not in what all have learned."""
        return self._optimizer.lost

    def staleness(self, gradient: Gradient) -> int:
        """Updates that were applied since the gradient's weights were read."""
        # Negative if these weights had updates that were lost.
        return max(0, self.progress.updates - gradient.updates)

    def apply(self, gradient: Gradient, *, alone: bool = False) -> Progress:
        """Apply a gradient to the shared weights; update the target and publish if that is due.

        Args:
            gradient: that was computed last.
            alone: whether no other learner takes turns; then a GPU need not store every update.

        Returns:
            The progress after the update.
        """
        before = self.progress
        delay = self.algorithm.delay
        actor_steps = before.actor_steps
        follows = gradient.acting and self._acting_is_due(before)
        if follows and delay > 1:
            # An update of the actor that came late is made up for, but at most one.
            actor_steps = max(actor_steps + delay, before.steps + 1 - delay)
        scale = loss_scale_of(before)
        if gradient.scale is not None:
            scale = scale.after(overflowed=False)
        after = Progress(
            before.updates + 1, before.steps + 1, before.samples + gradient.samples, actor_steps,
            before.actor_skipped + (not follows), scale.exponent, scale.stable,
        )
        steps: list[int | None] = [before.steps for _ in self._parts]
        steps[0] = before.steps - before.actor_skipped if follows else None
        rate = self.learning.step_size(before.updates)
        self._optimizer.step(steps, self.gradient, rate, after)
        self._update_target(after.updates)
        if after.updates % self.learning.publish_every == 0:
            self.publish()
        elif not alone or after.updates % STORE_EVERY == 0:
            self.store()
        return after

    def lower_scale(self, gradient: Gradient) -> LossScale:
        """Halve the loss scale that made a gradient overflow, unless another learner has.

        Returns:
            The scale in force.
        """
        before = self.progress
        scale = loss_scale_of(before)
        if gradient.scale is not None and gradient.scale.exponent == scale.exponent:
            scale = scale.after(overflowed=True)
            exponent, stable = scale.exponent, scale.stable
            self._optimizer.note(replace(before, scale_exponent=exponent, scale_stable=stable))
            # Or another learner's next update would bring the old one back.
            self.store()
        return scale

    def store(self) -> None:
        """Write all updates to the state that all learners share."""
        self._optimizer.store()

    def publish(self) -> None:
        """Store all updates, and publish the current weights for inference."""
        self.store()
        info = WeightsInfo(self.weights.header.version + 1, self.progress.updates)
        self.weights.publish_by(partial(self._optimizer.write, self._acting), info)

    def publish_if_newer(self) -> None:
        """Publish the current weights, unless they or newer ones are published."""
        if self.weights.header.updates < self.progress.updates:
            self.publish()

    def _acting_is_due(self, progress: Progress) -> bool:
        """Whether the next update includes the acting part."""
        return progress.steps + 1 - progress.actor_steps >= self.algorithm.delay

    def _update_target(self, updates: int) -> None:
        """Update the target network if that is due: replace it in its period, or move it softly.

        It is due by the updates that the target has seen. So if a learner is killed between the
        update of the weights and this one, the next learner makes up for it.
        """
        tau = self.algorithm.target_tau
        period = self.learning.target_period if tau is None else self.algorithm.delay
        if updates // period != self._optimizer.target_updates // period:
            self._optimizer.update_target(tau, updates)


def _slices(parts: Sequence[nn.Module]) -> Iterator[slice]:
    """The slices of the parts of a network in its flat state."""
    start = 0
    for part in parts:
        stop = start + FlatNetwork(part).size
        yield slice(start, stop)
        start = stop


def _zeros(count: int, device: Device) -> memoryview:
    """Memory on the host that the device copies from."""
    memory = device.host_memory((count,), np.uint8)
    memory.fill(0)
    return memoryview(memory)  # type: ignore[arg-type]


def loss_scale_of(progress: Progress) -> LossScale:
    """The loss scale in the progress of a state."""
    return LossScale(progress.scale_exponent, progress.scale_stable)
