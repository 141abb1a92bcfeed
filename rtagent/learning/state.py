"""A learner's state as the named arrays of a checkpoint, and back."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from rtagent.checkpoint import Checkpoint, CheckpointError
from rtagent.learning.dqn import DqnUpdate

_MOMENTS = ("exp_avg", "exp_avg_sq", "step")

Array = npt.NDArray[np.generic]


def collect(update: DqnUpdate) -> dict[str, Array]:
    """Everything a learner needs to go on: `online.*`, `target.*` and Adam's `<moment>.*`.

    Args:
        update: copied, not kept.
    """
    arrays = {f"online.{name}": _array(t) for name, t in update.network.state_dict().items()}
    arrays |= {f"target.{name}": _array(t) for name, t in update.target.state_dict().items()}
    for name, parameter in update.network.named_parameters():
        state = update.optimizer.state.get(parameter, {})
        arrays |= {f"{moment}.{name}": _array(state[moment]) for moment in _MOMENTS if state}
    return arrays


def restore(update: DqnUpdate, checkpoint: Checkpoint) -> None:
    """Put a checkpoint's state into a learner.

    Args:
        update: both networks, the optimizer and the count of updates are replaced.
        checkpoint: of the same network.

    Raises:
        CheckpointError: a tensor is missing or has another shape.
    """
    restore_network(update.network, "online", checkpoint)
    restore_network(update.target, "target", checkpoint)
    for name, parameter in update.network.named_parameters():
        found = {m: checkpoint.tensors.get(f"{m}.{name}") for m in _MOMENTS}
        if all(value is not None for value in found.values()):
            # Adam's fused kernel needs the moments in the parameter's memory layout.
            state = {m: torch.empty_like(parameter.detach()) for m in _MOMENTS[:2]}
            state["step"] = torch.zeros(())
            for moment, tensor in state.items():
                tensor.copy_(torch.tensor(found[moment]))
            update.optimizer.state[parameter] = state
    update.updates = checkpoint.counters.updates


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
            saved = checkpoint.tensors.get(f"{prefix}.{name}")
            if saved is None or saved.shape != tuple(tensor.shape):
                raise CheckpointError(
                    f"the checkpoint has no tensor {prefix}.{name} of the shape "
                    f"{tuple(tensor.shape)}; start with --set run.resume=false"
                )
            tensor.copy_(torch.tensor(saved))


def _array(tensor: Tensor) -> Array:
    values = tensor.detach().cpu()
    array: Array = (values.float() if values.is_floating_point() else values).contiguous().numpy()
    return array.copy()
