"""The learners' shared state as the named arrays of a checkpoint, and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from rtagent.memory.blueprint import TensorSpec
from rtagent.memory.learner_state import Arrays, LearnerState, Progress
from rtagent.storage.checkpoint import Checkpoint, CheckpointError

Floats = npt.NDArray[np.float32]
Array = npt.NDArray[np.generic]


@dataclass(frozen=True)
class Snapshot:
    """A private copy of the shared state; arrays of (parameters,) float32.

    Attributes:
        weights: of the network that learns.
        mean: Adam's exp_avg.
        square: Adam's exp_avg_sq.
        target: weights of the target network.
        progress: how far learning is.
    """

    weights: Floats
    mean: Floats
    square: Floats
    target: Floats
    progress: Progress


def take(state: LearnerState) -> Snapshot:
    """Copy the shared state. Under the apply lock."""
    now = state.current
    return Snapshot(
        now.weights.copy(), now.mean.copy(), now.square.copy(), state.target.copy(), state.progress
    )


def snapshot_bytes(state: LearnerState) -> int:
    """Memory of what `take` gives."""
    now = state.current
    return now.weights.nbytes + now.mean.nbytes + now.square.nbytes + state.target.nbytes


def put(snapshot: Snapshot, state: LearnerState) -> None:
    """Make a snapshot the shared state. Under the apply lock."""
    target = state.begin_target()
    np.copyto(target, snapshot.target)
    state.commit_target(snapshot.progress.updates)
    copy = state.copies[state.begin()]
    copy.copy_from(Arrays(snapshot.weights, snapshot.mean, snapshot.square))
    state.commit(snapshot.progress)


def begin(weights: Floats, updates: int) -> Snapshot:
    """The state that learning begins with: moments of 0, a target like the weights.

    Args:
        weights: (parameters,) what is published.
        updates: gradient steps behind them.
    """
    zeros = np.zeros_like(weights)
    return Snapshot(weights, zeros, zeros, weights, Progress(updates))


def to_arrays(
    snapshot: Snapshot, tensors: Sequence[TensorSpec], network: nn.Module
) -> dict[str, Array]:
    """The arrays of a checkpoint: `online.*`, `target.*` and Adam's `<moment>.*`.

    Args:
        snapshot: of the shared state.
        tensors: names and shapes of all that is learned, in flat order.
        network: its integer state, which does not travel in flat arrays, is saved, too.
    """
    arrays: dict[str, Array] = {
        f"{kind}.{name}": _array(tensor)
        for name, tensor in network.state_dict().items()
        if not tensor.is_floating_point()
        for kind in ("online", "target")
    }
    at = 0
    for spec in tensors:
        part = slice(at, at + spec.elements)
        for kind, values in _kinds(snapshot).items():
            arrays[f"{kind}.{spec.name}"] = values[part].reshape(spec.shape)
        at = part.stop
    arrays["optimizer.steps"] = np.array(snapshot.progress.steps, np.int64)
    if snapshot.progress.followed:
        arrays["optimizer.followed"] = np.array(snapshot.progress.followed, np.int64)
    return arrays


def from_checkpoint(checkpoint: Checkpoint, tensors: Sequence[TensorSpec]) -> Snapshot:
    """The shared state that a checkpoint holds.

    Args:
        checkpoint: of the same network.
        tensors: names and shapes, in flat order.

    Raises:
        CheckpointError: a tensor is missing or has another shape.
    """
    parameters = sum(spec.elements for spec in tensors)
    steps, followed = (
        int(_tensor(checkpoint, name, ())) if name in checkpoint.tensors else 0
        for name in ("optimizer.steps", "optimizer.followed")
    )
    counters = checkpoint.counters
    weights, mean, square, target = np.empty((4, parameters), np.float32)
    progress = Progress(counters.updates, steps, counters.samples_consumed, followed)
    snapshot = Snapshot(weights, mean, square, target, progress)
    at = 0
    for spec in tensors:
        part = slice(at, at + spec.elements)
        for kind, values in _kinds(snapshot).items():
            values[part] = _tensor(checkpoint, f"{kind}.{spec.name}", spec.shape).ravel()
        at = part.stop
    return snapshot


def restore_network(network: nn.Module, prefix: str, checkpoint: Checkpoint) -> None:
    """Put the weights of a checkpoint into a network.

    Args:
        network: keeps its precision and layout.
        prefix: `online` or `target`.
        checkpoint: of the same network.

    Raises:
        CheckpointError: a tensor is missing or has another shape.
    """
    with torch.no_grad():
        for name, tensor in network.state_dict().items():
            saved = _tensor(checkpoint, f"{prefix}.{name}", tuple(tensor.shape))
            tensor.copy_(torch.tensor(saved))


def _kinds(snapshot: Snapshot) -> dict[str, Floats]:
    return {
        "online": snapshot.weights,
        "target": snapshot.target,
        "exp_avg": snapshot.mean,
        "exp_avg_sq": snapshot.square,
    }


def _tensor(checkpoint: Checkpoint, name: str, shape: tuple[int, ...]) -> npt.NDArray[np.generic]:
    saved = checkpoint.tensors.get(name)
    if saved is None or saved.shape != shape:
        raise CheckpointError(
            f"the checkpoint has no tensor {name} of the shape {shape}; "
            "start with --set run.resume=false"
        )
    return saved


def _array(tensor: torch.Tensor) -> Array:
    array: Array = tensor.detach().cpu().numpy()
    return array.copy()
