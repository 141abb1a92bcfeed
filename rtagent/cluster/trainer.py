"""The trainer of the cluster's learner: the daemon's update, on memory of one process.

`SharedUpdate` works on a state and on weight buffers in shared memory; here both lie in the private
memory of the process that learns. So the same code learns in both places.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rtagent.cluster.message import MessageError
from rtagent.config import Config, Precision
from rtagent.learning.beginning import build_network
from rtagent.learning.device import Device
from rtagent.learning.replay.batch import Batch, empty_batch
from rtagent.learning.shared_update import Gradient, SharedUpdate, loss_scale_of
from rtagent.learning.state import Snapshot, defect_of, from_checkpoint, put, take, to_arrays
from rtagent.memory.array_buffer import Floats
from rtagent.memory.blueprint import Blueprint
from rtagent.memory.learner_state import Arrays, Progress
from rtagent.storage import checkpoint as checkpoints
from rtagent.storage.signature import signature

ARRAYS = (*(each.name for each in fields(Arrays)), "target")
"""Names of the arrays of a snapshot that have a value for each parameter."""


class Trainer:
    """Networks, optimizer, and the learned state.

    Args:
        config: names the network, the algorithm and the seed; how often weights are published.

    Raises:
        UserError: this machine has no device as `learning.device` says.

    Attributes:
        parameters: number of learned values.
        begun: whether there is a state to learn on.
    """

    def __init__(self, config: Config, blueprint: Blueprint) -> None:
        # The nodes say the step size of each update.
        learning = config.learning.model_copy(
            update={"publish_every": config.cluster.weights_every, "learning_rate_steps": 0}
        )
        device = Device.of(learning)
        self._update = SharedUpdate.private(
            build_network(config, blueprint), learning, device.generator(config.run.seed), device
        )
        self.begun = False
        self._measured = learning.precision != "auto"
        self._blueprint = blueprint
        self.parameters = blueprint.learned_parameters
        self._signature = signature(config, blueprint)
        self._seed = config.run.seed

    @property
    def progress(self) -> Progress:
        """Progress of learning."""
        return self._update.progress

    @property
    def version(self) -> int:
        """Version of the published weights; 0 if none are published."""
        info = self._update.weights.info()
        return 0 if info is None else info.version

    @property
    def precision(self) -> Precision:
        """Precision of forward and backward passes."""
        return self._update.algorithm.precision

    @property
    def loss_scale(self) -> float:
        """What losses are multiplied by in float16; 0 in another precision."""
        return loss_scale_of(self.progress).value if self.precision == "float16" else 0.0

    def begin(self, snapshot: Snapshot) -> None:
        """Learn on from a state."""
        put(snapshot, self._update.state)
        generator = self._update.algorithm.generator
        if generator is not None:
            # A learner that goes on does not draw its noise again.
            generator.manual_seed(self._seed + snapshot.progress.updates)
        self._update.publish()
        self.begun = True

    def learn(self, batch: Batch, learning_rate: float) -> Gradient:
        """One update; its gradient. One that is not finite changes nothing."""
        if learning_rate != self._update.learning.learning_rate:
            changed = {"learning_rate": learning_rate}
            self._update.learning = self._update.learning.model_copy(update=changed)
        if not self._measured:
            self._choose_precision(len(batch.actions))
        return self._update.step(batch)

    def errors(self, batch: Batch) -> Floats:
        """Absolute errors of the transitions of a batch, (B,); nothing is learned."""
        self._update.refresh()
        gradient = self._update.compute(batch, self.progress.updates)
        errors: Floats = gradient.errors.numpy(force=True)
        return errors

    def _choose_precision(self, batch_size: int) -> None:
        self._update.refresh()
        measured = self._update.measure_precisions(
            lambda count: empty_batch(self._blueprint, count), batch_size, lambda: None
        )
        self._update.algorithm.precision = measured.chosen
        self._measured = True

    def published(self) -> tuple[int, int, Floats]:
        """Version, updates and values (parameters,) of the weights to act with. The values stay
        valid until the next publication; the updates after that may overwrite them."""
        info = self._update.weights.info()
        assert info is not None, "published when learning begins"
        values = self._update.weights.copies[self._update.weights.current][0]
        return info.version, info.updates, values

    def snapshot(self) -> Snapshot:
        """A copy of the learned state."""
        self._update.store()
        return take(self._update.state)

    def save(self, folder: Path, learner: str) -> Path:
        """Write a checkpoint, as the daemon writes its own.

        Args:
            learner: identity of the learner that writes it.

        Raises:
            CheckpointError: it cannot be written.
        """
        snapshot, network = self.snapshot(), self._update.algorithm.network
        counters = checkpoints.Counters(
            snapshot.progress.updates, snapshot.progress.samples, self.version
        )
        arrays = to_arrays(snapshot, self._blueprint.learned_tensors, network)
        return checkpoints.save(folder, checkpoints.Checkpoint(
            self._signature, counters, arrays, run={"learner": learner},
        ))

    def restore(self, folder: Path, learner: str) -> bool:
        """Learn on from the newest checkpoint of a folder, if this learner has written it.

        Args:
            learner: identity of this learner; a checkpoint of another learner is of another run.

        Returns:
            Whether there was such a checkpoint.
        """
        try:
            newest, _ = checkpoints.newest_usable(folder, self._signature)
            if newest is None or (saved := newest[1]).run.get("learner") != learner:
                return False
            snapshot = from_checkpoint(saved, self._blueprint.learned_tensors)
        except checkpoints.CheckpointError:
            # It does not fit, or is damaged. The nodes that join have a state, too.
            return False
        self.begin(snapshot)
        return True


def snapshot_arrays(snapshot: Snapshot) -> dict[str, npt.NDArray[Any]]:
    """A snapshot as arrays by name, for a message."""
    progress = np.array(astuple(snapshot.progress), np.int64)
    return {**vars(snapshot.arrays), "target": snapshot.target, "progress": progress}


def snapshot_from(arrays: Mapping[str, npt.NDArray[Any]], parameters: int) -> Snapshot:
    """The reverse of `snapshot_arrays`.

    Raises:
        MessageError: the arrays are no snapshot of so many parameters, or have a number with which
            nothing can be learned.
    """
    shapes = {name: each.shape for name, each in arrays.items()}
    if shapes != {**dict.fromkeys(ARRAYS, (parameters,)), "progress": (len(fields(Progress)),)}:
        raise MessageError(f"no state of {parameters} parameters: {shapes}")
    flat = [arrays[name].astype(np.float32) for name in ARRAYS]
    state, target = Arrays(*flat[:-1]), flat[-1]
    progress = Progress(*arrays["progress"].astype(np.int64).tolist())
    # A network may have a constant that is infinite, such as a mask.
    if any(np.isnan(each).any() for each in flat) or state.square.min() < 0:
        raise MessageError("no state to learn on: it has NaN, or squares below 0")
    if defect := defect_of(progress):
        raise MessageError(f"no state to learn on: it has {defect}")
    return Snapshot(state, target, progress)
