"""The learners' shared state as the named arrays of a checkpoint, and back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from rtagent.learning.precision import LEAST_EXPONENT, MOST_EXPONENT
from rtagent.memory.array_buffer import Floats
from rtagent.memory.blueprint import TensorSpec
from rtagent.memory.learner_state import Arrays, LearnerState, Progress
from rtagent.storage.checkpoint import Checkpoint, CheckpointError

Array = npt.NDArray[np.generic]

_OTHERWISE = (
    "its network was built otherwise; a run begins without it with --set run.resume=false"
)


@dataclass(frozen=True)
class Snapshot:
    """A private copy of the shared state.

    Attributes:
        arrays: weights of the network that learns, and Adam's moments.
        target: (parameters,) float32, weights of the target network.
        progress: counters of updates, steps and samples, and the loss scale.
    """

    arrays: Arrays
    target: Floats
    progress: Progress

    def parts(self, tensors: Sequence[TensorSpec]) -> Iterator[tuple[str, TensorSpec, Floats]]:
        """For each tensor of the state: its name in a checkpoint, its shape, its flat values."""
        kinds = {
            "online": self.arrays.weights, "target": self.target,
            "exp_avg": self.arrays.mean, "exp_avg_sq": self.arrays.square,
        }
        at = 0
        for spec in tensors:
            part = slice(at, at + spec.elements)
            for kind, values in kinds.items():
                yield f"{kind}.{spec.name}", spec, values[part]
            at = part.stop


def take(state: LearnerState) -> Snapshot:
    """Copy the shared state. Under the apply lock."""
    now = state.current
    arrays = Arrays(now.weights.copy(), now.mean.copy(), now.square.copy())
    return Snapshot(arrays, state.target.copy(), state.progress)


def snapshot_bytes(state: LearnerState) -> int:
    """Bytes of the snapshot that `take` returns."""
    return 4 * state.target.nbytes


def put(snapshot: Snapshot, state: LearnerState) -> None:
    """Make a snapshot the shared state. Under the apply lock."""
    np.copyto(state.begin_target(), snapshot.target)
    state.commit_target(snapshot.progress.updates)
    state.copies[state.begin()].copy_from(snapshot.arrays)
    state.commit(snapshot.progress)


def begin(weights: Floats, updates: int) -> Snapshot:
    """The state that learning begins with: moments of 0, a target network equal to the weights.

    Args:
        weights: (parameters,) the published weights.
        updates: the number of updates in them.
    """
    zeros = np.zeros_like(weights)
    return Snapshot(Arrays(weights, zeros, zeros), weights, Progress(updates))


def to_arrays(
    snapshot: Snapshot, tensors: Sequence[TensorSpec], network: nn.Module
) -> dict[str, Array]:
    """The arrays of a checkpoint: `online.*`, `target.*` and Adam's `<moment>.*`.

    Args:
        snapshot: of the shared state.
        tensors: names and shapes of all learned tensors, in flat order.
        network: its integer state, which is not in the flat arrays, is saved, too.
    """
    arrays: dict[str, Array] = {
        f"{kind}.{name}": tensor.detach().cpu().numpy().copy()
        for name, tensor in network.state_dict().items()
        if not tensor.is_floating_point()
        for kind in ("online", "target")
    }
    for name, spec, values in snapshot.parts(tensors):
        arrays[name] = values.reshape(spec.shape)
    arrays["optimizer.steps"] = np.array(snapshot.progress.steps, np.int64)
    if snapshot.progress.actor_steps:
        arrays["optimizer.followed"] = np.array(snapshot.progress.actor_steps, np.int64)
    if snapshot.progress.actor_skipped:
        arrays["optimizer.actor_skipped"] = np.array(snapshot.progress.actor_skipped, np.int64)
    scale = [snapshot.progress.scale_exponent, snapshot.progress.scale_stable]
    arrays["optimizer.loss_scale"] = np.array(scale, np.int64)
    return arrays


def from_checkpoint(checkpoint: Checkpoint, tensors: Sequence[TensorSpec]) -> Snapshot:
    """The shared state that a checkpoint holds.

    Args:
        checkpoint: of the same network.
        tensors: names and shapes, in flat order.

    Raises:
        CheckpointError: a tensor is missing or has another shape, or a counter has a value that no
            learner writes.
    """
    steps, actor_steps, actor_skipped = (
        int(_tensor(checkpoint, name, ())) if name in checkpoint.tensors else 0
        for name in ("optimizer.steps", "optimizer.followed", "optimizer.actor_skipped")
    )
    counters = checkpoint.counters
    progress = Progress(
        counters.updates, steps, counters.samples_consumed, actor_steps, actor_skipped
    )
    if "optimizer.loss_scale" in checkpoint.tensors:
        exponent, stable = map(int, _tensor(checkpoint, "optimizer.loss_scale", (2,)))
        progress = replace(progress, scale_exponent=exponent, scale_stable=stable)
    if defect := defect_of(progress):
        raise CheckpointError(
            f"nothing can be learned on the checkpoint: it has {defect}; a run begins without it "
            "with --set run.resume=false"
        )
    *arrays, target = np.empty((4, sum(spec.elements for spec in tensors)), np.float32)
    snapshot = Snapshot(Arrays(*arrays), target, progress)
    for name, spec, values in snapshot.parts(tensors):
        values[:] = _tensor(checkpoint, name, spec.shape).ravel()
    return snapshot


def defect_of(progress: Progress) -> str | None:
    """What of a progress no learner writes, such as counts by which Adam would divide by 0."""
    counts = replace(progress, scale_exponent=0)
    if min(astuple(counts)) < 0 or counts.actor_skipped > counts.steps:
        return "counts below 0, or more steps left out than made"
    if not LEAST_EXPONENT <= progress.scale_exponent <= MOST_EXPONENT:
        return f"a loss scale of 2**{progress.scale_exponent}"
    return None


def restore_network(network: nn.Module, checkpoint: Checkpoint) -> None:
    """Copy the learned weights of a checkpoint into a network, in its precision and layout.

    Raises:
        CheckpointError: a tensor is missing, has another shape, or is not one of this network.
    """
    state = network.state_dict()
    for name in checkpoint.tensors:
        if name.startswith("online.") and name.removeprefix("online.") not in state:
            raise CheckpointError(f"the checkpoint has a tensor {name} too many: {_OTHERWISE}")
    with torch.no_grad():
        for name, tensor in state.items():
            saved = _tensor(checkpoint, f"online.{name}", tuple(tensor.shape))
            tensor.copy_(torch.tensor(saved))


def _tensor(checkpoint: Checkpoint, name: str, shape: tuple[int, ...]) -> Array:
    saved = checkpoint.tensors.get(name)
    if saved is None or saved.shape != shape:
        raise CheckpointError(
            f"the checkpoint has no tensor {name} of the shape {shape}: {_OTHERWISE}"
        )
    return saved
